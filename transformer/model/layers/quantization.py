"""A model for inference in bfloat16, or with int8 linear maps (Jacob et al. 2018, section 2)."""

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn

from transformer.common.errors import InputError
from transformer.common.processor import VARIABLE, processor
from transformer.model.layers.linear import Linear, lay_out
from transformer.settings.model import Precision

Model = TypeVar("Model", bound=nn.Module)

_by_fbgemm = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

LARGEST = 127
"""Largest quantized value; the symmetric range leaves -128 unused."""


def rounded(
    weight: Float[Tensor, "rows width"],
) -> tuple[Int8[Tensor, "rows width"], Float[Tensor, " rows"]]:
    """Int8 rows, and their scales."""
    largest = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny)
    scales = largest / LARGEST
    return (weight / scales[:, None]).round().to(torch.int8), scales


def pack(quantized: Tensor, engine: str) -> Any:
    """The weight in the format of an engine."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        return torch.ops.quantized.linear_prepack(quantized, None)
    finally:
        torch.backends.quantized.engine = before


class Int8Linear(nn.Module):
    """``x W^T + b`` in bytes, for a CPU; input and output are float32.

    Each row of ``x`` is divided by its largest magnitude and rounded with a constant scale, and its
    product is multiplied by that magnitude. So no row depends on the others.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._joined: list[Int8Linear] = []  # no part of the state
        self._bias = None if bias is None else bias.detach().float()
        weight = weight.detach().float()
        scales = rounded(weight)[1].double()
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():
            # torch has deprecated such tensors, and has no other dynamic product yet.
            warnings.filterwarnings("ignore", "torch.quantize_per", UserWarning)
            quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        self.engine = processor().int8_engine(weight.numel())
        self.packed = pack(quantized, self.engine)
        self.zero = 64 if processor().seven_bits else 128
        self.scale = 1 / (self.zero - 1)
        if self.engine == "onednn":
            layout = torch.ops.onednn.qlinear_prepack(quantized.int_repr(), None)
            self._for_onednn = layout, scales.float(), zeros

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width_out"]:
        x = x.detach()
        magnitudes = x.abs()
        largest = magnitudes.amax(-1, keepdim=True)
        # A row of zeros is NaN here, which becomes any integers. Then it is multiplied by 0.
        x = torch.div(x, largest, out=magnitudes)
        if self.engine == "fbgemm":
            product = _by_fbgemm(x, self.scale, self.zero, self.packed)
        elif self.engine == "onednn":
            product = self._by_onednn(x)
        else:
            product = self._by_range(x)
        if self._bias is None:
            return product.mul_(largest)
        return torch.addcmul(self._bias, product, largest, out=product)

    def _by_onednn(self, x: Tensor) -> Tensor:
        x = x.mul_(self.zero - 1).round_().add_(self.zero).to(torch.uint8)
        plain: Any = (None, 1.0, 0, torch.float32, "none", [], "")  # without a bias
        multiply = torch.ops.onednn.qlinear_pointwise
        return multiply(x, self.scale, self.zero, *self._for_onednn, *plain)

    def _by_range(self, x: Tensor) -> Tensor:
        # The engine takes the scale from the range of its input: two more rows make it constant.
        rows = x.nan_to_num_().flatten(0, -2)
        ends = rows.new_tensor([[-self.zero * self.scale], [1.0]]).expand(2, self.in_features)
        product = torch.ops.quantized.linear_dynamic(torch.cat((rows, ends)), self.packed)[:-2]
        return product.view(*x.shape[:-1], self.out_features)

    def concatenated(self, layers: "Sequence[Int8Linear]") -> "Int8Linear":
        """One map with the outputs of all, of which it is the first: always the same."""
        if not self._joined:
            weights, biases = zip(*(layer.unpacked() for layer in layers), strict=True)
            bias = None if biases[0] is None else torch.cat(biases)
            self._joined.append(Int8Linear(torch.cat(weights), bias))
        return self._joined[0]

    def unpacked(
        self,
    ) -> tuple[Float[Tensor, "width_out width"], Float[Tensor, " width_out"] | None]:
        """The rounded weights and the bias; ``state_dict`` has neither."""
        return torch.ops.quantized.linear_unpack(self.packed)[0].dequantize(), self._bias


def with_outputs(linear: nn.Linear | Int8Linear, rows: Int[Tensor, " rows"]) -> Linear:
    """The map to some of the outputs, a copy that does not learn; from int8 it is in float32."""
    if isinstance(linear, Int8Linear):
        weight, bias = linear.unpacked()
    else:
        weight, bias = linear.weight, linear.bias
    # The layout in memory stays, as the product is fast in it.
    weight = weight[rows] if weight.is_contiguous() else weight.t()[:, rows].t()
    bias = None if bias is None else bias[rows]
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
        if processor().int8 not in torch.backends.quantized.supported_engines:
            raise InputError(
                f"precision=int8 needs {processor().int8}, which this torch does not have; set "
                f"precision=float32, or {VARIABLE} to another kind of processor"
            )
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
