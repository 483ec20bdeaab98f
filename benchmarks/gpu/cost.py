"""The cost of training on paper: operations, bytes, communication, hours and money.

It measures nothing: README.md derives the formulas and names the source of each assumption.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.support.records import markdown

TOKENS = 25_000
"""Source tokens, and as many target tokens, of an update (Vaswani et al. 2017, section 5.1)."""
LENGTH = 30
"""Tokens of a sentence of either side."""
GPUS = (1, 2, 4, 8, 16, 32, 64)
GPUS_A_MACHINE = 8
TRAINING = 3
"""Forward passes that take as long as one forward and one backward pass."""
COLUMNS = ("", "base", "big", "how known")


@dataclass(frozen=True)
class Size:
    """An encoder-decoder of the plain kind, with one embedding for all (``tie_embeddings=all``)."""

    width: int
    ffn: int
    layers: int
    vocabulary: int

    @classmethod
    def of(cls, model: Mapping[str, Any], vocabulary: int) -> "Size":
        """That of a group ``model`` of the config."""
        return cls(model["d_model"], model["ffn_dim"], model["encoder_layers"], vocabulary)

    @property
    def parameters(self) -> int:
        """Weights of matrices, biases and post-norm layers."""
        width = self.width
        ffn = self.ffn
        attention = 4 * width * (width + 1)
        feed_forward = 2 * width * ffn + ffn + width
        encoder = attention + feed_forward + 2 * 2 * width
        decoder = 2 * attention + feed_forward + 3 * 2 * width
        return self.layers * (encoder + decoder) + self.vocabulary * width

    def forward_flops(self, source: float, target: float) -> float:
        """Of a sentence pair; a multiplication and an addition are two."""
        width = self.width
        feed_forward = 2 * self.width * self.ffn
        encoder = 2 * source * (4 * width**2 + feed_forward) + 4 * source**2 * width
        itself = 2 * target * 4 * width**2 + 4 * target**2 * width
        cross = 2 * (source + target) * 2 * width**2 + 4 * source * target * width
        decoder = itself + cross + 2 * target * feed_forward
        return self.layers * (encoder + decoder) + 2 * target * width * self.vocabulary

    def training_flops(self, source: float, target: float) -> float:
        """Of the forward and the backward pass of a sentence pair."""
        return TRAINING * self.forward_flops(source, target)

    @property
    def flops_a_token(self) -> float:
        """Of training, by target token, where both sides have ``LENGTH`` tokens."""
        return self.training_flops(LENGTH, LENGTH) / LENGTH

    @property
    def activation_bytes(self) -> int:
        """Kept for the backward pass, for a source token and a target token, in bf16-mixed."""
        encoder = 28 * self.width + 2 * self.ffn
        decoder = encoder + 13 * self.width
        memory = 8 * self.width
        return self.layers * (encoder + decoder + memory)


BASE = Size(512, 2048, 6, 32_000)
BIG = Size(1024, 4096, 6, 32_000)


@dataclass(frozen=True)
class Assumptions:
    """What only a GPU, a network and a bill can tell.

    Attributes:
        tflops: TFLOP/s that one GPU sustains in training.
        price: Of an hour of one GPU, in dollars.
        nvlink: GB/s that a GPU sends to others in its machine.
        adapter: GB/s that one network adapter sends.
        adapters: Of a machine.
    """

    tflops: float = 90.0
    price: float = 3.0
    nvlink: float = 450.0
    adapter: float = 50.0
    adapters: float = 1.0

    def compute_seconds(self, size: Size, tokens: float) -> float:
        """Of forward and backward over so many target tokens, on one GPU."""
        return tokens * size.flops_a_token / self.tflops / 1e12

    def all_reduce_seconds(self, size: Size, gpus: int, width: int = 4) -> float:
        """To sum gradients of so many bytes each over all GPUs; float32 has 4."""
        return self.ring_seconds(width * size.parameters, gpus)

    def sharded_seconds(self, size: Size, gpus: int, width: int = 4) -> float:
        """What fully sharded ranks send in an update, with gradients of so many bytes.

        Weights are gathered in bfloat16 before the forward and before the backward pass, and
        gradients summed by parts; each is half of an all-reduce.
        """
        return self.ring_seconds((2 + 2 + width) * size.parameters, gpus) / 2

    def ring_seconds(self, number: float, gpus: int) -> float:
        """To sum so many bytes by a ring inside each machine, and one of the machines."""
        inside = min(gpus, GPUS_A_MACHINE)
        machines = max(1, gpus // GPUS_A_MACHINE)
        ring = 2 * (inside - 1) / inside * number / self.nvlink
        network = 2 * (machines - 1) / machines * number / (self.adapter * self.adapters)
        return (ring + network) / 1e9

    def update_seconds(self, size: Size, tokens: float, gpus: int) -> float:
        """Of an update of so many target tokens a GPU; nothing overlaps."""
        return self.compute_seconds(size, tokens) + self.all_reduce_seconds(size, gpus)


def cost_tables(assumptions: Assumptions) -> list[str]:
    """All tables, as Markdown."""
    return [
        *markdown(COLUMNS, _sizes()),
        "",
        *markdown(["assumption", "value"], _assumed(assumptions)),
        "",
        *_communication(assumptions),
        "",
        *_narrow_gradients(assumptions),
        "",
        *_runs(assumptions),
    ]


def _sizes() -> list[Sequence[str]]:
    figures: dict[str, tuple[Callable[[Size], str], str]] = {
        "parameters": (lambda size: f"{size.parameters:,}", "derived, as the model has"),
        f"MFLOP a target token, forward, {LENGTH} tokens a side": (
            lambda size: f"{size.forward_flops(LENGTH, LENGTH) / LENGTH / 1e6:.1f}",
            "derived, as torch counts",
        ),
        "the same, forward and backward": (
            lambda size: f"{size.flops_a_token / 1e6:.1f}",
            "derived, as torch counts",
        ),
        "weights and gradients in float32, GB each": (
            lambda size: f"{4 * size.parameters / 1e9:.2f}",
            "derived",
        ),
        "moments of Adam, GB": (lambda size: f"{8 * size.parameters / 1e9:.2f}", "derived"),
        "weights in bfloat16, GB": (lambda size: f"{2 * size.parameters / 1e9:.2f}", "derived"),
        "activations of a source and a target token, kB": (
            lambda size: f"{size.activation_bytes / 1e3:.0f}",
            "estimated",
        ),
        f"activations of {TOKENS:,} and {TOKENS:,} tokens, GB": (
            lambda size: f"{TOKENS * size.activation_bytes / 1e9:.1f}",
            "estimated",
        ),
    }
    return [(name, show(BASE), show(BIG), known) for name, (show, known) in figures.items()]


def _assumed(assumptions: Assumptions) -> list[Sequence[str]]:
    rates = [f"{assumptions.tflops * 1e12 / s.flops_a_token:,.0f}" for s in (BASE, BIG)]
    return [
        ("TFLOP/s of one GPU in training (`--tflops`)", f"{assumptions.tflops:g}"),
        ("that is, target tokens/s at base and at big", " and ".join(rates)),
        ("dollars for an hour of one GPU (`--price`)", f"{assumptions.price:g}"),
        ("GB/s that a GPU sends over NVLink (`--nvlink`)", f"{assumptions.nvlink:g}"),
        ("GB/s that a network adapter sends (`--adapter`)", f"{assumptions.adapter:g}"),
        ("network adapters of a machine (`--adapters`)", f"{assumptions.adapters:g}"),
        ("GPUs of a machine", f"{GPUS_A_MACHINE}"),
        ("tokens of a sentence, of either side", f"{LENGTH}"),
    ]


def _communication(assumptions: Assumptions) -> list[str]:
    """What an all-reduce takes, and the share of the time that is left to compute."""
    rows = []
    for gpus in GPUS:
        row = [str(gpus), str(max(1, gpus // GPUS_A_MACHINE))]
        for size in (BASE, BIG):
            row.append(f"{assumptions.all_reduce_seconds(size, gpus) * 1e3:.1f}")
            for tokens in (TOKENS / gpus, TOKENS):
                compute = assumptions.compute_seconds(size, tokens)
                efficiency = compute / assumptions.update_seconds(size, tokens, gpus)
                row.append(f"{compute * 1e3:.1f} ({efficiency:.0%})")
        rows.append(row)
    columns = ["GPUs", "machines"]
    for name in ("base", "big"):
        split = f"{TOKENS:,} tokens in all"
        whole = f"{TOKENS:,} tokens a GPU"
        columns += [f"{name}: all-reduce, ms", f"{name}: compute, {split}, ms", f"{whole}, ms"]
    return markdown(columns, rows)


def _narrow_gradients(assumptions: Assumptions) -> list[str]:
    """What gradients in bfloat16 save of an update of 25,000 tokens in all, and a GPU."""
    rows = []
    for gpus in GPUS[1:]:
        row = [str(gpus)]
        for size in (BASE, BIG):
            wide, narrow = (assumptions.all_reduce_seconds(size, gpus, w) for w in (4, 2))
            row.append(f"{wide * 1e3:.1f} and {narrow * 1e3:.1f}")
            for tokens in (TOKENS / gpus, TOKENS):
                saved = (wide - narrow) / assumptions.update_seconds(size, tokens, gpus)
                row.append(f"{saved:.1%}")
        sharded = (assumptions.sharded_seconds(BIG, gpus, width) * 1e3 for width in (4, 2))
        row.append(" and ".join(f"{milliseconds:.1f}" for milliseconds in sharded))
        rows.append(row)
    columns = ["GPUs"]
    for name in ("base", "big"):
        columns += [f"{name}: all-reduce in float32 and bfloat16, ms"]
        columns += [f"saved, {TOKENS:,} tokens in all", f"saved, {TOKENS:,} a GPU"]
    return markdown([*columns, "big, fsdp: ms"], rows)


def _runs(assumptions: Assumptions) -> list[str]:
    """Hours and dollars of whole runs; each has one size and one number of target tokens."""
    billion = 1_000_000_000 * LENGTH
    rows = []
    for name, size, total, fixed in (
        ("WMT14, base: 100,000 updates", BASE, 100_000 * TOKENS, True),
        ("WMT14, big: 300,000 updates", BIG, 300_000 * TOKENS, True),
        ("a billion pairs once, base", BASE, billion, False),
        ("a billion pairs once, big", BIG, billion, False),
    ):
        row = [name, f"{total / 1e9:g}", f"{total * size.flops_a_token / 1e18:.2f}"]
        for gpus in (1, 8, 64):
            tokens = TOKENS / gpus if fixed else TOKENS
            seconds = total / (tokens * gpus) * assumptions.update_seconds(size, tokens, gpus)
            hours = seconds / 3600
            row.append(f"{hours:,.1f} h, ${hours * gpus * assumptions.price:,.0f}")
        rows.append(row)
    columns = ["run", "target tokens, billions", "EFLOP", "1 GPU", "8 GPUs", "64 GPUs"]
    return markdown(columns, rows)
