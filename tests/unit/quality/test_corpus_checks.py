"""Single checks: pairs with and without their faults."""

from functools import partial

import numpy as np
import pytest

from transformer.data.corpora.split import NumberedPair
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.quality.check import FindFault, Side, bare, either_side, quoted
from transformer.quality.checks.characters import (
    Alphabet,
    describe_foreign_script,
    find_control,
    find_mojibake,
    find_not_nfc,
    find_replacement,
    frequent_scripts,
)
from transformer.quality.checks.languages import Lexicon, find_copy
from transformer.quality.checks.lengths import UsualLengths, find_disproportion
from transformer.quality.checks.numbers_and_urls import (
    find_different_numbers,
    find_different_urls,
)
from transformer.quality.corpus_checks import count_tokens
from transformer.settings.tokenizer import TokenizerConfig


def pair(source: str, target: str) -> NumberedPair:
    return NumberedPair(1, source, target, 1, 1)


def test_control_characters() -> None:
    for code in (0, 9, 0x85, 0xAD, 0x200B, 0x200D, 0x2028, 0xFEFF, 0xE000, 0x1FFFE, 0xF0001):
        fault = find_control(pair(f"a{chr(code)}b", ""))
        assert fault is not None and f"U+{code:04X}" in fault.message
        assert fault.message.isprintable()
    typography = "l’été à\u00a05\u202fh　日本"
    for text in (typography, "می\u200cخواهم", "👩\u200d👩\u200d👧", "\u202aא\u202c", "ก\u200bข"):
        assert find_control(pair(text, "")) is None, text


# Some words of these are translated, some are kept.
TRANSLATED = [
    ("The small dog reads the long mail on this server.", "Der kleine Hund liest die lange Mail."),
    ("This small dog writes a long book for the cat.", "Dieser kleine Hund schreibt ein Buch."),
    ("The server has a small mail queue for the dog.", "Der Server hat eine kleine Mail-Liste."),
    ("This is the long name of the small Server Mail.", "Das ist der lange Name von Server Mail."),
] * 3


# A script without capitals on one side.
ARABIC = [
    ("الرجل يقرأ كتابا جديدا في البيت.", "The man reads a new book in the house."),
    ("الولد يقرأ رسالة في البيت.", "The boy reads a letter in the house."),
] * 3


Cases = list[tuple[str, str, bool]]
COPIES: Cases = [
    ("This small dog is long.", "this small dog is long !", True),
    ("SET THE LONG NAME FOR THIS", "SET THE LONG NAME FOR THIS", False),
    (
        "The long name of the small dog on this server is foo.",
        "The long name of the small dog on this server ist foo.",
        True,
    ),
    # Blanks and hyphens count: a compound is a translation.
    ("small mail server queue", "small-mail-server-queue", False),
    # Names, terms, titles and code.
    ("small dog", "small dog", False),
    ("The Small Dog for the Cat", "The Small Dog for the Cat", False),
    ("for this; do { small = long; }", "for this; do { small = long; }", False),
    ("foo-for-the-dog --small --long", "foo-for-the-dog --small --long", False),
    ("The dog.", "Der Hund.", False),
    ("a", "", False),
]
NUMBERS: Cases = [
    ("In 1998", "Im Jahr 1989", True),
    ("3 files and 3 folders", "3 Dateien und 4 Ordner", False),
    ("GTK+ 2 and 3 files", "GTK+ 4 und 3 Dateien", True),
    ("since 1993-4 and May 05", "seit 1993 und Mai 2005", False),
    ("e.g. -0400", "z. B. +0100", False),
    ("4-bit images", "Bilder mit 16 Farben", False),
    ("1,000.5 or 1,234,567", "1.000,5 oder 1.234.567", False),
    ("at 4.30 pm", "um 16:30 Uhr", False),
    ("the early 1990s, the 1800s", "die frühen 90er, das 19. Jahrhundert", False),
    ("5 thousand, 2.5 million", "5000, 2 500 000", False),
    ("two of 12", "zwei von zwölf", False),
    ("%s has %d bytes", "%2$s Byte hat %1$s", False),
    (f"at pm {'1' * 5000}", f"um pm {'2' * 5000}", True),
]
ADDRESSES: Cases = [
    ("see http://a.org/one", "siehe http://a.org/two", True),
    ("ask one@a.org", "fragen Sie two@a.org", True),
    ("see https://a.org/en/one.html", "siehe (https://a.org/de/one.de.html)", False),
    ("https://en.wikipedia.org/wiki/Dog", "https://de.wikipedia.org/wiki/Hund", False),
    ("see http://a.org", "siehe http://a.org/handbuch", False),
    ("see http://a.org/one", "fragen Sie two@a.org", False),
]
CHARACTERS: list[tuple[FindFault, str, str, bool]] = [
    (find_mojibake, "", "Der schÃ¶ne KÃ¤fer", True),
    (find_mojibake, "", "»Ü«, »ß« und »Überschreibung alter Dateien«", False),
    (find_mojibake, "", "don\x92t", True),
    (find_replacement, "the sign \ufffd", "das Zeichen »\ufffd«", False),
    (find_replacement, "the K\ufffdfer", "der Käfer", True),
    (find_not_nfc, "schön", "schön", False),
    (find_not_nfc, "x" * 100 + "scho\u0308n", "", True),
]


@pytest.mark.parametrize(
    ("find", "source", "target", "fault"),
    [
        *((partial(find_copy, Lexicon(TRANSLATED)), *case) for case in COPIES),
        (partial(find_copy, Lexicon(ARABIC)), ARABIC[0][0], ARABIC[0][0], True),
        (partial(find_copy, Lexicon(ARABIC)), *ARABIC[0], False),
        *((find_different_numbers, *case) for case in NUMBERS),
        *((find_different_urls, *case) for case in ADDRESSES),
        *CHARACTERS,
    ],
)
def test_a_check_finds_its_fault_alone(
    find: FindFault, source: str, target: str, fault: bool
) -> None:
    assert (find(pair(source, target)) is not None) is fault


LONG = "This program shows the names of all users that are logged in, with their terminals."
LANGER = "Dieses Programm zeigt die Namen aller Benutzer, die angemeldet sind, und ihre Terminals."


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        (LONG, LANGER, False),
        (LONG, f"{LANGER} {LANGER}", True),
        (
            LONG,
            f"{LANGER} Außerdem misst es, wie lange jeder von ihnen schon nichts getan hat.",
            True,
        ),
        # Labels are not closed, and their translations may be.
        (LONG.rstrip("."), f"{LANGER[:-1]}, auch die der Rechner, an denen sie sitzen.", False),
        ("the main program of the suite.", f"das wichtigste Programm (d.h. {LANGER}).", False),
        # Titles and short texts are translated freely.
        ("graph theory IDE", "Integrierte Entwicklungsumgebung für Graphentheorie", False),
        ("yes", "ja " * 12, True),
    ],
)
def test_a_side_twice_as_long_is_a_fault(source: str, target: str, fault: bool) -> None:
    find = partial(find_disproportion, UsualLengths(), 4.0)
    assert (find(pair(source, target)) is not None) is fault
    assert (find(pair(target, source)) is not None) is fault


def test_broken_text_and_short_quotes() -> None:
    cut = pair(LONG, "Dieses Programm zeigt die Namen")
    for closed in (False, True):
        usual = UsualLengths(closed=(False, closed))
        assert (find_disproportion(usual, 4.0, cut) is not None) is closed
    assert UsualLengths.fit([(LONG, LANGER)] * 300).closed == (True, True)
    assert UsualLengths.fit([(LONG, LANGER), (LONG, "ja")] * 200).closed == (True, False)
    text = quoted("y" * 200 + "\0" + "z" * 200, 200)
    assert text.startswith('"…') and "⟨U+0000⟩" in text and len(text) < 90
    # Vowel signs and tone marks distinguish words, emoji and signs do not.
    assert bare("„The  Dog!“ \u2764\ufe0f") == bare("the dog") == "thedog"
    assert bare("ＡＢＣ１２") == "abc12"
    assert len({bare(word) for word in ("दिन", "दान", "दीन")}) == 3


def test_usual_lengths_are_fitted_to_the_text() -> None:
    random = np.random.default_rng(1)
    sources = random.integers(20, 200, 2000)
    spreads = {}
    for spread in (0.05, 0.3):
        targets = sources * np.exp(random.normal(0.1, spread, 2000))
        usual = UsualLengths.fit(
            [("x" * a, "y" * int(b)) for a, b in zip(sources, targets, strict=True)]
        )
        assert usual.log_ratio == pytest.approx(0.1, abs=0.03)
        spreads[spread] = usual.deviation(100, 200)[1]
    assert spreads[0.05] > 2 * spreads[0.3]
    # Of few pairs the spread cannot be told.
    assert UsualLengths.fit([("x" * 10, "y" * 10)] * 46).spread == UsualLengths().spread


def test_a_foreign_name_is_no_foreign_text() -> None:
    own: dict[Side, frozenset[str]] = {
        "source": frequent_scripts(["Der Hund schläft."]),
        "target": frequent_scripts(["犬 が 寝 る 。 ねこ も ねる 。"]),
    }
    assert own == {"source": {"LATIN"}, "target": {"CJK", "HIRAGANA"}}
    find = either_side(partial(describe_foreign_script, own))
    for source, target, message in (
        ("Der Name ist Дмитрий.", "犬", None),
        ("Дима", "犬", None),
        ("Собака спит.", "犬", "Cyrillic script"),
        ("Hund", "The dog sleeps.", "Latin script"),
    ):
        fault = find(pair(source, target))
        assert (fault and fault.message.split(":")[0]) == message


def test_a_tokenizer_knows_characters_and_counts_tokens() -> None:
    lines = ["the small dog sleeps", "ein kleiner Hund schläft"]
    config = TokenizerConfig("bpe", 290, True, 0.0, 1.0, 1000)
    tokenizer = Tokenizer.train(config, lambda: [(lines[0], lines[1])] * 5)
    alphabet = Alphabet(tokenizer)
    assert alphabet.describe(False, "source", "  the dog schla\u0308ft ") is None
    message = alphabet.describe(False, "target", "der Wal")
    assert message is not None and '"W" U+0057' in message
    ids = tokenizer.encode_source(lines)
    assert count_tokens(tokenizer, lines, lines) == [[len(i) for i in ids]] * 2
    assert count_tokens(None, ["", "abcde"], ["ä" * 4, "x"]) == [[0, 2], [2, 1]]
