"""The keys under ``loss.``."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from transformer.common.errors import InputError, raise_objections

Consistency = Literal["none", "r_drop", "simcut"]


@dataclass(frozen=True)
class LossConfig:
    """How the loss is computed.

    Attributes:
        label_smoothing: Probability mass spread evenly over the vocabulary.
        chunk: Rows of logits that exist at a time in the fused form; 0 takes the plain form,
            which keeps all of them.
        bfloat16: Multiply in bfloat16 in the fused form, whatever the precision of the rest; on
            a CPU with AVX512-BF16 twice as fast, with a relative error of the gradient of 3e-3.
        alignment_weight: Of guided alignment (``alignment_loss.py``); 0 goes without.
        alignment_layer: Decoder layer, from 0, of the cross-attention head that learns the links;
            null takes the last but one.
        alignment_head: That head, from 0.
        consistency: What the second of two passes over each batch is (``consistency_loss.py``):
            ``r_drop`` the same under other dropout, ``simcut`` one with tokens cut; ``none``
            makes one pass.
        consistency_weight: Alpha of the paper, by which the divergence of the two passes counts.
        cut: Probability with which ``simcut`` cuts a token of either side.
    """

    label_smoothing: float
    chunk: int
    bfloat16: bool
    alignment_weight: float
    alignment_layer: int | None
    alignment_head: int
    consistency: Consistency
    consistency_weight: float
    cut: float

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"loss.label_smoothing={self.label_smoothing} must be in [0, 1)")
        if self.chunk < 0:
            raise InputError(f"loss.chunk={self.chunk} must be 0 (plain) or a number of rows")
        if self.bfloat16 and not self.chunk:
            raise InputError("loss.bfloat16=true needs the fused form; set loss.chunk=512")
        if self.alignment_weight < 0:
            raise InputError(f"loss.alignment_weight={self.alignment_weight} must be 0 or more")
        if not self.alignment_weight and (self.alignment_head or self.alignment_layer is not None):
            raise InputError(
                "loss.alignment_layer and loss.alignment_head are of guided alignment; set "
                "loss.alignment_weight=0.05, or leave them out"
            )
        raise_objections(_consistency_objections(self))


def _consistency_objections(config: LossConfig) -> Iterator[str]:
    """What is set and would do nothing, or is not and would have to be."""
    kind, weight, cut = config.consistency, config.consistency_weight, config.cut
    if kind == "none" and (weight or cut):
        name, value = ("consistency_weight", weight) if weight else ("cut", cut)
        yield f"loss.{name}={value} is of a second pass; set loss.consistency=r_drop or simcut"
    if kind != "none" and not 0 < weight < math.inf:
        yield (
            f"loss.consistency={kind} needs a loss.consistency_weight above 0, not {weight}; set "
            "one, or loss.consistency=none"
        )
    if kind == "r_drop" and cut:
        yield f"loss.cut={cut} is of loss.consistency=simcut, not of r_drop; set loss.cut=0"
    if kind == "simcut" and not 0 < cut < 1:
        yield f"loss.cut={cut} must be in (0, 1) for loss.consistency=simcut; the paper takes 0.05"
    if kind != "none" and config.alignment_weight:
        yield (
            f"loss.alignment_weight={config.alignment_weight} guides one pass, and loss.consistency"
            f"={kind} makes two; set loss.alignment_weight=0 or loss.consistency=none"
        )
