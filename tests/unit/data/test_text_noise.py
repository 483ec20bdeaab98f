"""A disturbance is a pure function and does what its definition says; word links stay right."""

import html
from collections import Counter
from random import Random

import numpy as np
import pytest

from transformer.data import text_noise
from transformer.data.binarized.dataset import DISTURBANCE, pair_seeds
from transformer.data.text_noise import (
    DISTURBANCES,
    KINDS,
    UNCHANGED,
    Linked,
    disturbed,
    drawn_kinds,
)
from transformer.settings.data import AugmentationConfig

PAIR = ('Two "big" dogs don\'t chase 12 cats & 3 birds.', 'Zwei "große" Hunde jagen 12 und 3.')
TEXT, TARGET = PAIR
NEXT = ("A man sleeps.", "Ein Mann schläft.")


def apply(name: str, seed: int = 1, *window: tuple[str, str]) -> tuple[str, str]:
    return DISTURBANCES[name].change(window or [PAIR], Random(seed))


@pytest.mark.parametrize("name", DISTURBANCES)
def test_the_reference_changes_only_where_the_catalog_says_so(name: str) -> None:
    """Where the target must not change, the reference is that of the clean text."""
    targets = {apply(name, seed)[1] for seed in range(5)}
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
def test_fixed_disturbances(name: str, source: str, target: str) -> None:
    assert apply(name) == (source, target)


def test_random_disturbances() -> None:
    for seed in range(30):
        source, target = apply("emoji", seed)
        assert source.split(" ")[-1] == target.split(" ")[-1] and source.startswith(TEXT + " ")
        source, target = apply("numbers", seed)
        assert text_noise.numbers(source) == text_noise.numbers(target) != ["12", "3"]
        source, _ = apply("missing_blank", seed)
        assert len(source) == len(TEXT) - 1
        assert source.replace(" ", "") == TEXT.replace(" ", "")
        assert apply("single_word", seed)[0] in TEXT.split()
        source, _ = apply("html_entities", seed)
        assert html.unescape(source).replace("\xa0", " ") == TEXT and "&nbsp;" in source
        assert '"' not in apply("quotes", seed)[0]
    assert apply("full_width", 1, NEXT)[0] == "Ａ ｍａｎ ｓｌｅｅｐｓ．"
    assert apply("joined", 1, PAIR, NEXT) == (f"{TEXT} {NEXT[0]}", f"{TARGET} {NEXT[1]}")


def test_a_change_that_the_reference_could_not_follow_is_not_made() -> None:
    pair = ("3 dogs", "drei Hunde")
    assert apply("numbers", 1, pair) == pair
    pair = ("12 34", "Wort.")
    for name in ("no_final_punctuation", "upper"):
        assert apply(name, 1, pair) == pair


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


OWN = Linked(("one two three .", "eins zwei drei ."), np.array([[0, 0], [1, 1], [2, 2], [3, 3]]))
OTHER = Linked(("four five", "fünf vier"), np.array([[0, 1], [1, 0]]))


def made(kind: str, seed: int = 1) -> Linked:
    return disturbed(KINDS.index(kind), seed, OWN, OTHER)


def links(linked: Linked) -> set[tuple[str, str]]:
    """The linked words."""
    source, target = (text.split(" ") for text in linked.pair)
    assert linked.links is not None
    return {(source[a], target[b]) for a, b in linked.links.tolist()}


def test_kinds_come_as_often_as_their_probabilities_say() -> None:
    config = AugmentationConfig(upper=0.1, typos=0.3, joined=0.05)
    kinds = drawn_kinds(config, pair_seeds(1, 0, np.arange(40_000), DISTURBANCE))
    counts = Counter(kinds.tolist())
    shares = {"upper": 0.1, "typos": 0.3, "joined": 0.05}
    assert counts.keys() == {UNCHANGED, *map(KINDS.index, shares)}
    for name, share in shares.items():
        assert counts[KINDS.index(name)] / 40_000 == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_linked_words_stay_linked(kind: str) -> None:
    """A link of a changed pair joins words of one meaning: here, at the same index."""
    for seed in range(20):
        noisy = made(kind, seed)
        assert noisy.links is not None
        words = [len(text.split(" ")) for text in noisy.pair]
        assert (noisy.links >= 0).all() and (noisy.links < words).all()
        assert disturbed(KINDS.index(kind), seed, Linked(OWN.pair), Linked(OTHER.pair)) == Linked(
            noisy.pair
        )


def test_links_of_merged_joined_removed_and_random_words() -> None:
    assert links(made("joined")) >= {("four", "vier"), ("five", "fünf"), (".", ".")}
    merged = {frozenset(links(made("blanks", seed))) for seed in range(20)}
    assert merged == {
        frozenset({("onetwo", "eins"), ("onetwo", "zwei"), ("three", "drei"), (".", ".")}),
        frozenset({("one", "eins"), ("twothree", "zwei"), ("twothree", "drei"), (".", ".")}),
    }
    for seed in range(20):
        punctuated = made("punctuation", seed)
        assert {("one", "eins"), ("two", "zwei"), ("three", "drei")} <= links(punctuated)
        noise = made("noise", seed)
        assert noise.pair[0] == noise.pair[1] and all(a == b for a, b in links(noise))
