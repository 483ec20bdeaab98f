"""Muon: an orthogonal update for each matrix of the layers, AdamW for all other weights.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", with the scale of
Liu et al. 2025, "Muon is scalable for LLM training", and the polynomials of Amsel et al. 2025,
"The Polar Express". ``torch.optim.Muon`` multiplies one matrix at a time, always in bfloat16, skips
no bad update, and leaves the other weights to a second optimizer.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.adam import adam

from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.convolution import GatedConvolution
from transformer.model.encoder import LayerStack

Matrices = Float[Tensor, "matrix rows columns"]
Polynomial = tuple[float, float, float]

_POLYNOMIALS: tuple[Polynomial, ...] = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)
"""``a, b, c`` of each step: ``p(x) = a x + b x^3 + c x^5``.

They are optimal for singular values from 1e-3 to 1 (Amsel et al. 2025, algorithm 1).
"""

_SAFETY = 1.01
"""A step diverges above its interval, which rounding must not leave; the last has no successor."""


class Muon(Optimizer):
    """Orthogonalizes the momentum of the matrices, and steps all other weights by AdamW.

    A matrix moves by ``-lr 0.2 sqrt(max(rows, columns)) U V^T`` and decays by ``lr weight_decay``,
    where ``U S V^T`` is its Nesterov momentum. This is as far as by Adam, so that both share a rate
    (Liu et al. 2025, equation 4). As torch's fused Adam does, it divides gradients by
    ``grad_scale`` and does nothing if ``found_inf`` is 1, which the host does not read.

    Each of several ranks orthogonalizes some of the matrices, and sends the result to the others.
    These are the ranks of the mesh where weights are sharded (FSDP), else all ranks, which must
    have the same weights and gradients. DDP sees to that where ranks drop other layers: all get the
    sum of those that have a gradient, or none.

    Args:
        matrices: Weights, with the number of matrices that each stacks: for one head each, or 1.
        others: All other weights; those with two axes and more decay.
        momentum: Decay of the momentum.
        dtype: Of the products that orthogonalize.
    """

    grad_scale: Tensor | None = None
    found_inf: Tensor | None = None

    def __init__(
        self,
        matrices: Mapping[nn.Parameter, int],
        others: Sequence[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        momentum: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        weights_by_count: defaultdict[int, list[nn.Parameter]] = defaultdict(list)
        for weight, count in matrices.items():
            weights_by_count[count].append(weight)
        groups: list[dict[str, Any]] = [
            {"params": weights, "matrices_per_weight": count}
            for count, weights in weights_by_count.items()
        ]
        groups.append({"params": [p for p in others if p.dim() > 1]})
        groups.append({"params": [p for p in others if p.dim() <= 1], "weight_decay": 0.0})
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            # 0: AdamW steps the group.
            "matrices_per_weight": 0,
            # So that torch loads Adam's step onto the device.
            "fused": True,
        }
        super().__init__([group for group in groups if group["params"]], defaults)
        # No setting of a group: a checkpoint holds plain values, and resumes with a dtype of its
        # own on another processor.
        self.dtype = dtype

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"dtype": self.dtype}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Step every weight that has a gradient; returns the loss that ``closure`` computes."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not group["matrices_per_weight"]:
                self._step_adam(weights, group)
                continue
            for same_shape in _by_shape(weights):
                self._step_matrices(same_shape, group)
        return loss

    def _step_matrices(self, weights: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Step matrices of one shape."""
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [_local(self.state[weight]["momentum"]) for weight in weights]
        momentum = torch.stack(momenta)
        gradient = torch.stack([_local(weight.grad) for weight in weights])
        if self.grad_scale is not None:
            gradient /= self.grad_scale
        rate = group["lr"]
        if self.found_inf is not None:
            # With the momentum for a gradient, the momentum stays; without a rate, the weights do.
            gradient = torch.where(self.found_inf > 0, momentum, gradient)
            rate = rate * (1 - self.found_inf)
        momentum.lerp_(gradient, 1 - group["momentum"])
        torch._foreach_copy_(momenta, momentum.unbind())
        nesterov = gradient.lerp_(momentum, group["momentum"])
        del momentum
        rows, columns = weights[0].shape
        count = group["matrices_per_weight"]
        compute = partial(_orthogonalize_stacked, count=count, dtype=self.dtype)
        if isinstance(weights[0], DTensor):
            ranks = weights[0].device_mesh.get_group()
            update = _exchange_rows(compute, nesterov, rows, ranks)
        else:
            update = _compute_by_rank(compute, nesterov)
        scale = 0.2 * math.sqrt(max(rows // count, columns))
        local = [_local(weight) for weight in weights]
        if group["weight_decay"]:
            torch._foreach_mul_(local, 1 - rate * group["weight_decay"])
        torch._foreach_sub_(local, (update * (rate * scale)).unbind())

    def _step_adam(self, weights: list[nn.Parameter], group: dict[str, Any]) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["step"] = torch.zeros((), device=weight.device)
                self.state[weight]["exp_avg"] = torch.zeros_like(weight)
                self.state[weight]["exp_avg_sq"] = torch.zeros_like(weight)
        states = [self.state[weight] for weight in weights]
        beta1, beta2 = group["betas"]
        adam(
            [_local(weight) for weight in weights],
            [_local(weight.grad) for weight in weights],
            [_local(state["exp_avg"]) for state in states],
            [_local(state["exp_avg_sq"]) for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
            decoupled_weight_decay=True,
        )


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The weights of the linear maps in the layers, with the number of matrices that each stacks.

    Each head has a query, key and value matrix of its own (Vaswani et al. 2017, section 3.2.2:
    ``W_i^Q``); to orthogonalize these rather than the whole weight is our choice, and cheaper.
    Embeddings, output, adapters and frozen weights are none.
    """
    counts: dict[nn.Parameter, int] = {}
    for stack in model.modules():
        if not isinstance(stack, LayerStack):
            continue
        for module in stack.layers.modules():
            if isinstance(module, nn.Linear):
                counts.setdefault(cast(nn.Parameter, module.weight), 1)
            if isinstance(module, GatedConvolution):
                counts[cast(nn.Parameter, module.linear.weight)] = 2
            if isinstance(module, MultiHeadAttention):
                for projection in (module.query, module.key, module.value):
                    weight = cast(nn.Parameter, projection.weight)
                    counts[weight] = len(weight) // module.head_dim
    embedded = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    learning = {weight for weight in model.parameters() if weight.requires_grad}
    return {w: count for w, count in counts.items() if w in learning and w not in embedded}


def orthogonalize(matrices: Matrices, dtype: torch.dtype = torch.float32) -> Matrices:
    """``U V^T`` of each matrix ``U S V^T``, approximately: singular values between 0.84 and 1.13.

    Singular values below 1e-3 of the root of the sum of their squares stay smaller. The products
    are in ``dtype``, the result has the dtype of ``matrices``.
    """
    if matrices.size(1) > matrices.size(2):
        return orthogonalize(matrices.mT, dtype).mT
    norm = matrices.norm(dim=(1, 2), keepdim=True)
    x = (matrices / (norm * _SAFETY + 1e-30)).to(dtype)
    device = matrices.device.type
    # An update runs under the autocast of a run in mixed precision, which has its own dtype.
    available = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if available else nullcontext():
        for polynomials in _together(x):
            x = _apply(polynomials, x)
    return x.to(matrices.dtype)


def _together(x: Matrices) -> list[list[Polynomial]]:
    """The polynomials in groups that ``_apply`` takes."""
    polynomials = [
        (a / _SAFETY, b / _SAFETY**3, c / _SAFETY**5) for a, b, c in _POLYNOMIALS[:-1]
    ] + [_POLYNOMIALS[-1]]
    if x.dtype == torch.bfloat16 or x.size(2) < 2 * x.size(1):
        return [[polynomial] for polynomial in polynomials]
    # All at once would lose small singular values, whose squares are rounded.
    return [polynomials[:2], polynomials[2:]]


def _apply(polynomials: Sequence[Polynomial], x: Matrices) -> Matrices:
    """``p_n(... p_1(x))``, by ``x x^T`` and its powers: smaller than ``x``, if that is wide."""
    gram = x @ x.mT
    product = None
    for a, b, c in polynomials[:-1]:
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        gram = factor @ gram @ factor
    a, b, c = polynomials[-1]
    factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    if product is None:
        return torch.baddbmm(x, factor, x, beta=a)
    return torch.baddbmm(product, factor, product, beta=a) @ x


def _orthogonalize_stacked(weights: Matrices, *, count: int, dtype: torch.dtype) -> Matrices:
    # weight (matrix rows) columns -> (weight matrix) rows columns, and back
    matrices = weights.unflatten(1, (count, -1)).flatten(0, 1)
    return orthogonalize(matrices, dtype).reshape(weights.shape)


def _by_shape(weights: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    by_shape: defaultdict[torch.Size, list[nn.Parameter]] = defaultdict(list)
    for weight in weights:
        by_shape[weight.shape].append(weight)
    return list(by_shape.values())


def _local(tensor: Any) -> Tensor:
    """The rows of this rank."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _compute_by_rank(compute: Callable[[Matrices], Matrices], weights: Matrices) -> Matrices:
    """Compute some weights on each rank, and gather the results; each rank has all weights."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if ranks == 1:
        return compute(weights)
    padded = F.pad(weights, (0, 0, 0, 0, 0, -len(weights) % ranks))
    results = torch.empty_like(padded)
    own = padded.chunk(ranks)[dist.get_rank()]
    dist.all_gather_into_tensor(results, compute(own).contiguous())
    return results[: len(weights)]


def _exchange_rows(
    compute: Callable[[Matrices], Matrices], shards: Matrices, rows: int, ranks: dist.ProcessGroup
) -> Matrices:
    """Compute some whole weights on each rank; a rank gives and gets its rows of all weights."""
    # FSDP gives each rank equally many rows, the last ones fewer or none.
    height = -(-rows // ranks.size())
    heights = [min(height, max(0, rows - rank * height)) for rank in range(ranks.size())]
    columns = shards.size(2)
    padded = F.pad(shards, (0, 0, 0, 0, 0, -len(shards) % ranks.size()))
    count = len(padded) // ranks.size()
    sizes_here = [count * shards.size(1) * columns] * ranks.size()
    sizes = [count * height * columns for height in heights]
    received = padded.new_empty(sum(sizes))
    dist.all_to_all_single(received, padded.flatten(), sizes, sizes_here, group=ranks)
    whole = torch.cat(
        [
            part.view(count, height, columns)
            for part, height in zip(received.split(sizes), heights, strict=True)
        ],
        dim=1,
    )
    computed = compute(whole).split(heights, dim=1)
    returned = torch.empty_like(padded)
    sent = torch.cat([part.flatten() for part in computed])
    dist.all_to_all_single(returned.view(-1), sent, sizes_here, sizes, group=ranks)
    return returned[: len(shards)]
