"""Disturbs training pairs: a function of the settings, the pair and a seed.

Sources: Bogoychev et al. 2023 (OpusTrainer, arXiv 2311.14838, section 3); copied noise: Khayrallah
and Koehn 2018 (W18-2709); joined sentences: Kondo et al. 2021 (2021.naacl-srw.18).
"""

from dataclasses import astuple, fields
from random import Random
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.data.text.parallel import Pair
from transformer.data.text_noise import changes
from transformer.data.text_noise.catalog import DISTURBANCES
from transformer.data.tokenization.normalization import normalize
from transformer.settings.augmentation import AugmentationConfig

Links = Int[np.ndarray, "link 2"]

UNCHANGED = -1
"""Kind of a pair that nothing changes."""


KINDS = tuple(field.name for field in fields(AugmentationConfig))
JOINED = KINDS.index("joined")


class Linked(NamedTuple):
    """A pair, and its links of words if the training has them."""

    pair: Pair
    links: Links | None = None


def drawn_kinds(
    config: AugmentationConfig, seeds: Int[np.ndarray, " pair"]
) -> Int[np.ndarray, " pair"]:
    """Return the number of the disturbance of each pair, UNCHANGED for most; seeds have 32 bits."""
    bounds = np.cumsum(astuple(config)) * 2.0**32
    kinds = np.searchsorted(bounds, seeds, side="right").astype(np.int8)
    return np.where(kinds < len(KINDS), kinds, np.int8(UNCHANGED))


def disturbed(kind: int, seed: int, own: Linked, other: Linked) -> Linked:
    """Return a pair changed by a disturbance; ``other`` follows it where two are joined."""
    if kind == JOINED:
        return _joined(own, other)
    pair = _changed(KINDS[kind], own.pair, seed)
    if own.links is None:
        return Linked(pair)
    return Linked(pair, _relinked(own, pair, noise=KINDS[kind] == "noise"))


def _changed(name: str, pair: Pair, seed: int) -> Pair:
    (source, target), random = pair, Random(seed)
    if name == "noise":
        made = changes.noise(source, random)
        return made, made
    if name == "typos":
        for _ in range(random.randint(1, 3)):
            source = changes.typo(source, random)
        return source, target
    if name == "punctuation":
        name = random.choice(("no_final_punctuation", "doubled_final_punctuation"))
    if name == "blanks":
        name = "missing_blank"
    return DISTURBANCES[name].change([pair], random)


def _joined(own: Linked, other: Linked) -> Linked:
    pair = f"{own.pair[0]} {other.pair[0]}", f"{own.pair[1]} {other.pair[1]}"
    if own.links is None or other.links is None:
        return Linked(pair)
    before = [len(normalize(text).split(" ")) for text in own.pair]
    return Linked(pair, np.concatenate([own.links, other.links + np.array(before, np.int32)]))


def _relinked(own: Linked, pair: Pair, *, noise: bool) -> Links:
    words = [normalize(text).split(" ") for text in pair]
    if noise:
        return np.repeat(np.arange(len(words[0]), dtype=np.int32)[:, None], 2, axis=1)
    assert own.links is not None
    links = own.links.copy()
    former = normalize(own.pair[0]).split(" ")
    if len(words[0]) < len(former) and words[0] != former[: len(words[0])]:
        # Two words of the source have become one: those after it move.
        merged = next(i for i, word in enumerate(words[0]) if word != former[i])
        links[:, 0] -= links[:, 0] > merged
    # A final punctuation that was a word of its own is gone.
    return links[(links < [len(side) for side in words]).all(axis=1)]
