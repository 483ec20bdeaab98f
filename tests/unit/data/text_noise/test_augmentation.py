"""Which training pairs are disturbed, and that word links stay right."""

from collections import Counter

import numpy as np
import pytest

from transformer.common.errors import InputError
from transformer.data.binarized.dataset import DISTURBANCE, pair_seeds
from transformer.data.text_noise import (
    KINDS,
    UNCHANGED,
    Linked,
    disturbed,
    drawn_kinds,
)
from transformer.settings.data import AugmentationConfig

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


def test_no_kind_or_all_kinds() -> None:
    seeds = np.array([0, 1, 2**32 - 1])
    assert drawn_kinds(AugmentationConfig(), seeds).tolist() == [UNCHANGED] * 3
    assert (
        drawn_kinds(AugmentationConfig(blanks=1.0), seeds).tolist() == [KINDS.index("blanks")] * 3
    )


def test_probabilities_above_one_together_are_refused() -> None:
    with pytest.raises(InputError, match=r"augmentation have the sum 1\.2; at most one changes"):
        AugmentationConfig(upper=0.6, lower=0.6)
    with pytest.raises(InputError, match=r"augmentation\.noise=-1\.0 must be from 0 to 1"):
        AugmentationConfig(noise=-1.0)


def test_a_change_depends_on_the_seed() -> None:
    assert {made("typos", 7).pair for _ in range(3)} == {made("typos", 7).pair}
    assert len({made("typos", seed).pair for seed in range(9)}) > 4


@pytest.mark.parametrize("kind", KINDS)
def test_linked_words_stay_linked(kind: str) -> None:
    """A link of a changed pair joins words of one meaning: here, at the same index."""
    for seed in range(20):
        found = made(kind, seed)
        assert found.links is not None
        words = [len(text.split(" ")) for text in found.pair]
        assert (found.links >= 0).all() and (found.links < words).all()
        assert disturbed(KINDS.index(kind), seed, Linked(OWN.pair), Linked(OTHER.pair)) == Linked(
            found.pair
        )


def test_links_of_merged_joined_removed_and_random_words() -> None:
    assert links(made("joined")) >= {("four", "vier"), ("five", "fünf"), (".", ".")}
    merged = {frozenset(links(made("blanks", seed))) for seed in range(20)}
    assert merged == {
        frozenset({("onetwo", "eins"), ("onetwo", "zwei"), ("three", "drei"), (".", ".")}),
        frozenset({("one", "eins"), ("twothree", "zwei"), ("twothree", "drei"), (".", ".")}),
    }
    for seed in range(20):
        found = made("punctuation", seed)
        assert {("one", "eins"), ("two", "zwei"), ("three", "drei")} <= links(found)
        noise = made("noise", seed)
        assert noise.pair[0] == noise.pair[1] and all(a == b for a, b in links(noise))
