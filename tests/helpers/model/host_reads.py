"""Finds what makes the host wait for a GPU, on torch's ``meta`` device, which stands for it.

A meta tensor has no values and does not mix with a CPU's, so that a mixture of devices fails too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

READS = {
    *("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select"),
    *("_unique2", "unique_dim", "unique_consecutive", "repeat_interleave.Tensor", "bincount"),
}
"""Operations whose result, or its size, the host needs."""


class HostReads(TorchDispatchMode):
    """Fails at a read within an operation, and counts the tensors that are copied to the host.

    A copy comes back as ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Look, and run."""
        kwargs = kwargs or {}
        on_device = [x for x in _tensors(args) if x.device.type == "meta"]
        if on_device and (reason := reason_to_wait(function, args)):
            raise AssertionError(f"the host waits for {reason}")
        if function is torch.ops.aten._to_copy.default and kwargs.get("device") is not None:
            to = torch.device(kwargs["device"]).type
            if on_device and to == "cpu":
                self.copies += 1
                return torch.ones_like(args[0], device="cpu", dtype=kwargs.get("dtype"))
            if not on_device and to == "meta" and not kwargs.get("non_blocking"):
                raise AssertionError("the host waits for a copy to the device")
        return function(*args, **kwargs)


def reason_to_wait(function: Any, args: tuple[Any, ...]) -> str | None:
    """The name of an operation that makes the host wait for the device; None for others."""
    name = str(function).removeprefix("aten.")
    if name in READS or str(function.overloadpacket).removeprefix("aten.") in READS:
        return name
    if name.startswith("index") and any(x.dtype == torch.bool for x in _tensors(args[1:2])):
        return f"{name} with a mask"
    return None


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments, and those in lists of them."""
    flat: list[Tensor] = []
    for value in values:
        flat += _tensors(value) if isinstance(value, list | tuple) else []
        flat += [value] if isinstance(value, Tensor) else []
    return flat
