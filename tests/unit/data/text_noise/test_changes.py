"""A disturbance is a pure function, and changes what its definition says."""

import html
from random import Random

import pytest

from transformer.data import text_noise
from transformer.data.text_noise import DISTURBANCES

PAIR = ('Two "big" dogs don\'t chase 12 cats & 3 birds.', 'Zwei "große" Hunde jagen 12 und 3.')
TEXT, TARGET = PAIR
NEXT = ("A man sleeps.", "Ein Mann schläft.")


def disturbed(name: str, seed: int = 1, *window: tuple[str, str]) -> tuple[str, str]:
    return DISTURBANCES[name].change(window or [PAIR], Random(seed))


@pytest.mark.parametrize("name", DISTURBANCES)
def test_it_is_a_function_of_text_and_generator(name: str) -> None:
    for seed in range(20):
        assert disturbed(name, seed) == disturbed(name, seed)


@pytest.mark.parametrize("name", DISTURBANCES)
def test_the_reference_stays_or_changes_as_it_is_said(name: str) -> None:
    """Where the target must not change, the reference is that of the clean text."""
    targets = {disturbed(name, seed)[1] for seed in range(5)}
    kind = DISTURBANCES[name].reference
    if kind == "same" and name != "empty":
        assert targets == {TARGET}
    if kind == "changed" and name != "joined":
        assert TARGET not in targets


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("upper", TEXT.upper(), 'ZWEI "GROSSE" HUNDE JAGEN 12 UND 3.'),
        (
            "title",
            'Two "Big" Dogs Don\'t Chase 12 Cats & 3 Birds.',
            'Zwei "Große" Hunde Jagen 12 Und 3.',
        ),
        ("lower", TEXT.lower(), TARGET),
        ("no_final_punctuation", TEXT[:-1], TARGET[:-1]),
        ("doubled_final_punctuation", TEXT + ".", TARGET),
        ("twice", f"{TEXT} {TEXT}", f"{TARGET} {TARGET}"),
        ("other_language", TARGET, TARGET),
        ("empty", "", ""),
    ],
)
def test_what_is_not_random(name: str, source: str, target: str) -> None:
    assert disturbed(name) == (source, target)


def test_what_is_random() -> None:
    for seed in range(30):
        source, target = disturbed("emoji", seed)
        assert source.split(" ")[-1] == target.split(" ")[-1] and source.startswith(TEXT + " ")
        source, target = disturbed("numbers", seed)
        assert text_noise.numbers(source) == text_noise.numbers(target) != ["12", "3"]
        source, _ = disturbed("missing_blank", seed)
        assert len(source) == len(TEXT) - 1
        assert source.replace(" ", "") == TEXT.replace(" ", "")
        assert disturbed("single_word", seed)[0] in TEXT.split()
        source, _ = disturbed("html_entities", seed)
        assert html.unescape(source).replace("\xa0", " ") == TEXT and "&nbsp;" in source
        assert '"' not in disturbed("quotes", seed)[0]
    assert disturbed("full_width", 1, NEXT)[0] == "Ａ ｍａｎ ｓｌｅｅｐｓ．"
    assert disturbed("joined", 1, PAIR, NEXT) == (f"{TEXT} {NEXT[0]}", f"{TARGET} {NEXT[1]}")


def test_numbers_of_one_side_alone_stay() -> None:
    """The reference could not follow."""
    pair = ("3 dogs", "drei Hunde")
    assert disturbed("numbers", 1, pair) == pair


@pytest.mark.parametrize("name", ["no_final_punctuation", "upper", "emoji"])
def test_a_target_stays_where_the_source_does(name: str) -> None:
    pair = ("12 34", "Wort.")
    assert (disturbed(name, 1, pair) == pair) == (name != "emoji")


def test_a_typo_is_one_edit_of_a_long_word_behind_its_first_letter() -> None:
    kinds = set()
    for seed in range(300):
        typo = text_noise.typo("a chasing man", Random(seed))
        first, word, last = typo.split(" ")
        assert (first, last, word[0]) == ("a", "man", "c")
        kinds.add(len(word) - len("chasing"))
        if len(word) == len("chasing"):
            assert sum(a != b for a, b in zip(word, "chasing", strict=True)) <= 2
    assert kinds == {-1, 0, 1}
    assert text_noise.typo("a man", Random(1)) == "a man"
    # A script that no key of the table writes.
    assert {len(text_noise.typo("собака", Random(seed))) for seed in range(50)} == {5, 6, 7}


def test_noise_has_no_more_words_than_the_text() -> None:
    made = {text_noise.noise("a b", Random(seed)) for seed in range(50)}
    assert len(made) == 50 and {len(text.split()) for text in made} == {1, 2}
