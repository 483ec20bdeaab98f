"""Sparse patterns, True for "may attend": the same for a sentence in any batch."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.settings.model import ModelConfig, PatternName

Pattern = Callable[[Int[Tensor, "*#shape"], Int[Tensor, "*#shape"]], Bool[Tensor, "*shape"]]


@dataclass(frozen=True)
class Sliding:
    """The ``window`` nearest positions on each side (Beltagy et al. 2020, figure 2b)."""

    window: int

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() <= self.window


@dataclass(frozen=True)
class Longformer(Sliding):
    """A sliding window; the first ``global_tokens`` see all and are seen by all.

    Beltagy et al. 2020, figure 2d; there, global tokens have separate projections.
    """

    global_tokens: int

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        near = super().__call__(query, key)
        return near | (query < self.global_tokens) | (key < self.global_tokens)


@dataclass(frozen=True)
class BigBird(Longformer):
    """Longformer's pattern and random links between blocks of positions.

    Each block is linked, both ways, with at most ``random_blocks`` random blocks among itself and
    earlier blocks: draws may repeat, or hit what the window shows. The draw depends only on the
    seed and the block, not on the length of the text.
    Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", section 2.
    """

    random_blocks: int
    block: int
    seed: int

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        seen = super().__call__(query, key)
        later = torch.maximum(query // self.block, key // self.block)
        earlier = torch.minimum(query // self.block, key // self.block)
        for draw in range(self.random_blocks):
            seen = seen | (_hash(later, self.seed, draw) % (later + 1) == earlier)
        return seen


def build_pattern(config: ModelConfig, name: PatternName) -> Pattern | None:
    """The pattern of this name; None for full attention."""
    if name == "full":
        return None
    if name == "sliding":
        return Sliding(config.window)
    if name == "longformer":
        return Longformer(config.window, config.global_tokens)
    # The same links: only the seed modulo 2**32 counts. Compiled, it has 32 bits and a sign.
    seed = (config.pattern_seed + 2**31) % 2**32 - 2**31
    return BigBird(
        config.window,
        config.global_tokens,
        config.random_blocks,
        config.random_block_size,
        seed,
    )


def _hash(number: Tensor, seed: int, draw: int) -> Tensor:
    """Non-negative pseudo-random integers below 2**31, a function of number, seed and draw."""
    # A tensor, because compiled for a GPU an integer of Python has 32 bits.
    salt = (torch.full_like(number, seed, dtype=torch.long) * 1_000_003 + draw) * 0x85EBCA77
    mixed = number.long() * 0x9E3779B1 + (salt & 0xFFFFFFFF)
    for factor in (0x7FEB352D, 0x846CA68B):
        mixed = ((mixed ^ (mixed >> 16)) * factor) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 16)) & 0x7FFFFFFF
