"""What a device does with its time, from the names and times of its kernels.

Nothing here measures: traces.py does. Groups are those of a Transformer in training and in search.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.gpu.measure import Values

# Products of matrices; clipping belongs to the optimizer, and the log-softmax of a search to the
# loss, whose kernels it takes. Other kernels are mostly element-wise, or sums.
GROUPS = (
    "products",
    "attention",
    "norm",
    "dropout",
    "loss",
    "optimizer",
    "top-k",
    "copies",
    "other",
)
IDLE = "idle"
SHOWN_GAPS = 3
"""Of the gaps of a trace, the longest are named."""
SHOWN_NAME = 40
"""Characters of the name of a kernel in a table."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    # Fused attention comes first: its kernels have cutlass and gemm in their names, too.
    ("attention", r"flash|fmha|memeff|efficient_attention|sdpa|scaled_dot_product|flex_attention"),
    ("optimizer", r"multi_tensor_apply|_foreach_|lpnorm|adam"),
    ("products", r"gemm|gemv|nvjet|cutlass|splitk|xmma|cublas|dot_kernel|triton_tem"),
    ("products", r"^aten::(linear|mm|addmm|bmm|baddbmm|matmul|_scaled_mm)$"),
    # The last number of softmax_warp is whether it takes the logarithm.
    ("loss", r"log_?softmax|nll_loss|cross_entropy|logsumexp|softmax_warp_\w+<[^>]*\d, true"),
    ("norm", r"layer_?norm|rms_?norm|gradgammabeta|gammabetabackward"),
    ("dropout", r"dropout|masked_scale|bernoulli|philox|distribution_|random_?$|_rand"),
    ("attention", r"softmax"),
    ("top-k", r"topk|sort"),
    ("copies", r"memcpy|memset|copy_kernel|catarray|fillfunctor"),
    ("copies", r"^aten::(to|copy_|cat|stack|clone|contiguous|fill_|zero_|zeros|zeros_like)$"),
)
"""Groups by a part of a kernel's name in lower case; the first that is found counts."""

_COMPILED = (("loss", r"logsumexp|log_softmax"), ("norm", r"layer_norm|rsqrt"))
"""Of a kernel that torch.compile has fused from several operations, the one that says most."""

SCOPES = (("loss", "FusedLoss"), ("optimizer", "Optimizer."))
"""Groups by the block of the host, by the beginning of its name, that launches a kernel."""


def group_of(name: str, scope: str | None = None) -> str:
    """The group of a kernel of CUDA or Triton, or of an operator of the CPU.

    ``scope`` is the group of the block that launches it (``SCOPES``). It counts for all but
    products and attention, because element-wise kernels do not say what they are for.
    """
    lower = name.lower()
    patterns = _PATTERNS
    if lower.startswith("triton_") and not lower.startswith("triton_tem"):
        patterns = (*_COMPILED, *_PATTERNS)
    group = next((group for group, part in patterns if re.search(part, lower)), "other")
    if scope is not None and group not in ("products", "attention"):
        return scope
    return group


@dataclass(frozen=True)
class Kernel:
    """A kernel that has run, in microseconds of one clock.

    Attributes:
        name: As the profiler gives it.
        start, end: On the device.
        launched: When the host asked for it; None if that is unknown, or on a CPU.
        scope: See ``group_of``.
    """

    name: str
    start: float
    end: float
    launched: float | None = None
    scope: str | None = None

    @property
    def group(self) -> str:
        """Its group."""
        return group_of(self.name, self.scope)


class Gap(NamedTuple):
    """Microseconds in which no kernel runs, and the kernels before and after."""

    length: float
    before: Kernel
    after: Kernel

    @property
    def waits_for_host(self) -> bool:
        """Whether the host asked for the next kernel only when the device had nothing to do."""
        launched = self.after.launched
        return launched is not None and launched > self.before.end


def gaps_between(kernels: Sequence[Kernel]) -> list[Gap]:
    """All gaps, in their order; kernels of several streams may overlap."""
    gaps = []
    latest: Kernel | None = None
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        if latest is not None and kernel.start > latest.end:
            gaps.append(Gap(kernel.start - latest.end, latest, kernel))
        if latest is None or kernel.end > latest.end:
            latest = kernel
    return gaps


def busy_by_group(kernels: Iterable[Kernel]) -> dict[str, float]:
    """Microseconds of each group; time in which kernels overlap counts once, for the first."""
    spent = dict.fromkeys(GROUPS, 0.0)
    until = float("-inf")
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        spent[kernel.group] += max(0.0, kernel.end - max(kernel.start, until))
        until = max(until, kernel.end)
    return spent


def summary(kernels: Sequence[Kernel], times: int) -> Values:
    """The columns of a trace of ``times`` updates or steps, each by one of them.

    Milliseconds and the share of all time for each group and for idle time; of the idle time, what
    the device waits for the host; and the longest gaps.
    """
    if not kernels:
        raise RuntimeError("the profiler has recorded no kernel")
    spent = busy_by_group(kernels)
    gaps = gaps_between(kernels)
    whole = max(k.end for k in kernels) - min(k.start for k in kernels)
    spent[IDLE] = sum(gap.length for gap in gaps)
    waits = sum(gap.length for gap in gaps if gap.waits_for_host)

    def shown(microseconds: float) -> str:
        return f"{microseconds / times / 1000:.2f} ({microseconds / whole:.1%})"

    longest = sorted(gaps, key=lambda gap: -gap.length)[:SHOWN_GAPS]
    return {
        "ms": whole / times / 1000,
        "kernels": len(kernels) / times,
        **{group: shown(value) for group, value in spent.items()},
        "waits for the host": shown(waits),
        "longest gaps": "; ".join(map(_described, longest)) or "none",
    }


def _described(gap: Gap) -> str:
    return f"{gap.length:,.0f} µs before {shortened(gap.after.name)}"


def shortened(name: str) -> str:
    """The part of a kernel's name that tells most, without namespaces and return type."""
    plain = re.sub(r"^void |\(anonymous namespace\)::|at::native::|<unnamed>::", "", name)
    return plain[:SHOWN_NAME]


def by_name(kernels: Iterable[Kernel]) -> Iterator[Mapping[str, object]]:
    """A line for each kernel, group and name, the longest in all first."""
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    calls: Counter[tuple[str, str]] = Counter()
    for kernel in kernels:
        key = kernel.group, kernel.name
        spent[key] += kernel.end - kernel.start
        calls[key] += 1
    for key in sorted(spent, key=lambda key: -spent[key]):
        group, name = key
        yield {"group": group, "ms": spent[key] / 1000, "calls": calls[key], "kernel": name}
