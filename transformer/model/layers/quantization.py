"""A model for inference in bfloat16, or with int8 linear maps (Jacob et al. 2018, section 2)."""

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn

from transformer.common.errors import InputError
from transformer.model.config import Precision
from transformer.model.layers.linear import Linear, best_time, lay_out
from transformer.model.layers.mixed_precision import processor_has

Model = TypeVar("Model", bound=nn.Module)

LARGEST = 127
"""Largest quantized value; the symmetric range leaves -128 unused."""
_WIDE_SUMS = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Instruction sets of x86-64 that add up products of bytes in 32 bits."""


_FEW, _SEVERAL, _MANY = 16, 48, 128
"""Rows: with fewer than ``_SEVERAL``, the engine that is the fastest for ``_FEW`` multiplies."""

_measured: dict[torch.Size, tuple[str, str]] = {}
"""The engines of a shape for few and for many rows, measured in milliseconds."""


def engines() -> list[str]:
    """torch's engines for int8 on this processor."""
    supported = map(str, torch.backends.quantized.supported_engines)
    return sorted({"fbgemm", "onednn"}.intersection(supported)) or ["qnnpack"]


def rounded(
    weight: Float[Tensor, "rows width"],
) -> tuple[Int8[Tensor, "rows width"], Float[Tensor, " rows"]]:
    """Int8 rows, and their scales."""
    largest = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny)
    scales = largest / LARGEST
    return (weight / scales[:, None]).round().to(torch.int8), scales


def pack(quantized: Tensor, bias: Tensor | None, engine: str) -> Any:
    """The weight in the format of an engine."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        return torch.ops.quantized.linear_prepack(quantized, bias)
    finally:
        torch.backends.quantized.engine = before


class Int8Linear(nn.Module):
    """``x W^T + b`` in bytes, for a CPU; input and output are float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._joined: list[Int8Linear] = []  # no part of the state
        weight = weight.detach().float()
        scales, zeros = rounded(weight)[1].double(), torch.zeros(len(weight), dtype=torch.long)
        bias = None if bias is None else bias.detach().float()
        with warnings.catch_warnings():
            # torch has deprecated such tensors, and has no other dynamic product yet.
            warnings.filterwarnings("ignore", "torch.quantize_per", UserWarning)
            quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        # Without them x86-64 adds two products in 16 bits, which overflow if the input has 8 bits.
        self.seven_bits = processor_has("avx2") is not False and not processor_has(*_WIDE_SUMS)
        known = _measured.get(weight.shape)
        self.packed = {name: pack(quantized, bias, name) for name in known or engines()}
        if known is None:
            known = _measured[weight.shape] = self._fastest(_FEW), self._fastest(_MANY)
            self.packed = {name: self.packed[name] for name in known}
        self.fastest = known

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_out"]:
        few, many = self.fastest
        return self._map(x, few if x.numel() < _SEVERAL * x.size(-1) else many)

    def _map(self, x: Tensor, engine: str) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed[engine], self.seven_bits)

    def _fastest(self, rows: int) -> str:
        x = torch.ones(rows, self.in_features)
        return min(self.packed, key=lambda engine: best_time(self._map, x, engine))

    def concatenated(self, layers: "Sequence[Int8Linear]") -> "Int8Linear":
        """One map with the outputs of all, of which it is the first: always the same."""
        if not self._joined:
            weights, biases = zip(*(one.unpacked() for one in layers), strict=True)
            bias = None if biases[0] is None else torch.cat(biases)
            self._joined.append(Int8Linear(torch.cat(weights), bias))
        return self._joined[0]

    def unpacked(
        self,
    ) -> tuple[Float[Tensor, "width_out width"], Float[Tensor, " width_out"] | None]:
        """The rounded weights and the bias; ``state_dict`` has neither."""
        weight, bias = torch.ops.quantized.linear_unpack(next(iter(self.packed.values())))
        return weight.dequantize(), bias


def with_outputs(linear: nn.Linear | Int8Linear, rows: Int[Tensor, " rows"]) -> Linear:
    """The map to some of the outputs, a copy that does not learn; from int8 it is in float32."""
    given = linear.unpacked() if isinstance(linear, Int8Linear) else (linear.weight, linear.bias)
    # The layout in memory stays, as the product is fast in it.
    weight = given[0][rows] if given[0].is_contiguous() else given[0].t()[:, rows].t()
    bias = None if given[1] is None else given[1][rows]
    part = Linear(weight.size(1), len(rows), bias=bias is not None, device="meta")
    part.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        part.bias = nn.Parameter(bias, requires_grad=False)
    return part


def in_precision(
    model: Model,
    precision: Precision,
    device: torch.device | str = "cpu",
    *,
    untie: bool = True,
) -> Model:
    """Convert a model for inference in place; on a CPU, float32 is laid out; or InputError."""
    if precision == "int8":
        if torch.device(device).type != "cpu":
            raise InputError(f"precision=int8 computes on a CPU, not on device={device}")
        # Shared layers have the same module several times: it is packed once.
        packed: dict[nn.Module, Int8Linear] = {}
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, Linear):
                    packed[child] = packed.get(child) or Int8Linear(child.weight, child.bias)
                    setattr(module, name, packed[child])
    if precision == "bfloat16":
        return model.to(torch.bfloat16)
    model = model.float()
    return lay_out(model, untie=untie) if torch.device(device).type == "cpu" else model
