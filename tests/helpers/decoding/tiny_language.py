"""A language of ten pieces, all of whose texts can be listed, for tests of constraints."""

import itertools
from collections.abc import Callable
from functools import cache

import torch

from transformer.decoding.constraints.phrase_automaton import Vocabulary, spell
from transformer.settings.tokenizer import BOS, EOS

from .steps import RecurrentStep

PIECES = ["", " ?", "", "", "a", "b", " a", " ", "ab", "."]
"""Pad, unk, bos, eos, and what a text is made of."""
LIMIT = 4
SEEDS = [3, 5, 8]


def tiny_vocabulary() -> Vocabulary:
    """How the pieces are spelled."""
    return Vocabulary.from_spellings([spell(subword) for subword in PIECES])


def batch_text(subwords: tuple[int, ...]) -> str:
    """The text that is cut so."""
    return "".join(PIECES[subword] for subword in subwords)


@cache
def every_hypothesis(seed: int) -> dict[tuple[int, ...], float]:
    """All sequences of at most ``LIMIT`` pieces with their log-probabilities."""
    usable = [1, *range(4, len(PIECES))]
    values = {}
    for length in range(LIMIT + 1):
        rows = list(itertools.product(usable, repeat=length))
        step = RecurrentStep([seed] * len(rows), 1, len(PIECES))
        tokens = torch.tensor(rows).reshape(len(rows), length)
        total = torch.zeros(len(rows))
        given = torch.full((len(rows), 1), BOS)
        for index in range(length):
            logs = step(given)[:, 0]
            total += logs[torch.arange(len(rows)), tokens[:, index]]
            given = tokens[:, index : index + 1]
        total += step(given)[:, 0, EOS]
        values |= dict(zip(rows, total.tolist(), strict=True))
    return values


def best(seed: int, allowed: Callable[[str], bool]) -> tuple[float, tuple[int, ...]]:
    """The most probable of those whose text is allowed."""
    return max(
        (total, row) for row, total in every_hypothesis(seed).items() if allowed(batch_text(row))
    )
