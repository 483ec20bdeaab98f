"""Single checks: what they take for a fault, and what not."""

import pytest

from transformer.data.tokenizer import Tokenizer, TokenizerConfig
from transformer.doctor.alphabet import UnknownCharacters, known_to
from transformer.doctor.characters import ControlCharacters, DecomposedCharacters
from transformer.doctor.copies import Copies
from transformer.doctor.markup import Markup
from transformer.doctor.mojibake import Mojibake
from transformer.doctor.pair import NumberedPair, bare, quoted
from transformer.doctor.scripts import ForeignScript, script_of, scripts_among
from transformer.doctor.tokens import CountedTokens, EstimatedTokens


def pair(source: str, target: str) -> NumberedPair:
    return NumberedPair(1, source, target, 1, 1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a < b and b > c & d; R&D", False),
        ("a <b>bold</b> word", True),
        ("a<br/>", True),
        ("a <!-- note", True),
        ("Bed &amp; Breakfast", True),
        ("&#228; &#xE4;", True),
        ("I <3 you", False),
    ],
)
def test_markup(text: str, fault: bool) -> None:
    assert (Markup("train", 3).said("source", text) is not None) is fault


@pytest.mark.parametrize(
    "code", [0, 9, 13, 0x7F, 0x85, 0xAD, 0x200B, 0x2028, 0xFEFF, 0xE000, 0x1FFFE, 0xEFFFF, 0xF0001]
)
def test_control_characters(code: int) -> None:
    said = ControlCharacters("train", 3).said("source", f"a{chr(code)}b")
    assert said is not None and f"U+{code:04X}" in said
    assert said.isprintable()


@pytest.mark.parametrize(
    "text",
    ["a b", "l’été à 5 h", "　日本", "می‌خواهم", "👩‍👩‍👧", "", "\u202aא\u202c", "\u2067א\u2069"]
    + [f"{a}\u200b{b}" for a, b in ("กข", "ກຂ", "ကခ", "កខ")],
)
def test_what_scripts_are_spelt_with_is_no_control_character(text: str) -> None:
    assert ControlCharacters("train", 3).said("source", text) is None


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        ("The dog.", "the dog !", True),
        ("„Taxi“", "Taxi", True),
        ("1984", "1984", False),
        ("The dog.", "Der Hund.", False),
        ("", "", False),
        ("a", "", False),
        ("Straße", "STRASSE", True),
        ("NHK", "\uff2e\uff28\uff2b", True),
        ("\ufb01ne", "fine", True),
    ],
)
def test_copies(source: str, target: str, fault: bool) -> None:
    assert (Copies("train", 3).fault(pair(source, target)) is not None) is fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Der schÃ¶ne KÃ¤fer", True),
        ("Itâ€™s a dog", True),
        ("Der schöne Käfer heißt Ångström", False),
        ("犬 が 寝 る 。", False),
        ("plain", False),
    ],
)
def test_mojibake(text: str, fault: bool) -> None:
    assert (Mojibake("train", 3).said("target", text) is not None) is fault


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "LATIN"),
        ("ß", "LATIN"),
        ("Ａ", "LATIN"),
        ("д", "CYRILLIC"),
        ("犬", "CJK"),
        ("い", "HIRAGANA"),
        ("1", None),
        (".", None),
        ("😀", None),
    ],
)
def test_the_script_of_a_letter(character: str, script: str | None) -> None:
    assert script_of(character) == script


def test_a_foreign_name_is_no_foreign_text() -> None:
    own = scripts_among(["Der Hund schläft."]), scripts_among(["犬 が 寝 る 。 ねこ も ねる 。"])
    assert own == ({"LATIN"}, {"CJK", "HIRAGANA"})
    check = ForeignScript("train", 3, own)
    assert check.said("source", "Der Name ist Дмитрий.") is None
    assert check.said("source", "Дима") is None
    assert (check.said("source", "Собака спит.") or "").startswith("Cyrillic script")
    assert (check.said("target", "The dog sleeps.") or "").startswith("Latin script")


def test_composed_text_is_quiet_and_the_first_other_character_is_shown() -> None:
    check = DecomposedCharacters("train", 3)
    assert check.said("source", "schön") is None
    assert check.said("source", "x" * 100 + "scho\u0308n") is not None


def test_the_same_text_is_the_same_bare() -> None:
    assert bare("„The  Dog!“") == bare("the dog") == "thedog"
    assert bare("ＡＢＣ１２") == "abc12"
    assert bare("…!") == bare("_ -") == ""
    assert bare("schön") != bare("schon")
    # The emoji is none of it, in whichever form.
    assert bare("ja \u2764\ufe0f") == bare("ja \u2764") == "ja"


@pytest.mark.parametrize(
    "words", [("दिन", "दान", "दीन"), ("ขาว", "ข่าว", "ข้าว"), ("কল", "কাল", "কিল")]
)
def test_vowel_signs_and_tone_marks_tell_words_apart(words: tuple[str, ...]) -> None:
    assert len(set(map(bare, words))) == len(words)
    assert bare(f"{words[0]}, {words[1]} ।") == bare(words[0]) + bare(words[1])


def test_a_quotation_is_short_and_can_be_seen() -> None:
    text = quoted("a\0b\u2028" + "x" * 200, 0)
    assert text.isprintable() and len(text) < 90
    assert "⟨U+0000⟩" in text and "⟨U+2028⟩" in text
    assert '"…' in quoted("y" * 200 + "\0" + "z" * 200, 200)


def test_a_tokenizer_knows_its_characters_and_counts_its_tokens() -> None:
    lines = ["the small dog sleeps", "ein kleiner Hund schläft"]
    config = TokenizerConfig("bpe", 290, True, 0.0, 1.0, 1000)
    tokenizer = Tokenizer.train(config, lambda: [(lines[0], lines[1])] * 5)
    check = UnknownCharacters("test", 3, known_to(tokenizer))
    assert check.said("source", "  the dog schla\u0308ft ") is None
    said = check.said("target", "der Wal")
    assert said is not None and '"W" U+0057' in said
    ids = tokenizer.encode_source(lines)
    assert CountedTokens(tokenizer)(lines, lines) == ([len(i) for i in ids],) * 2
    assert EstimatedTokens()(["", "abcde"], ["ä" * 4, "x"]) == ([0, 2], [2, 1])
