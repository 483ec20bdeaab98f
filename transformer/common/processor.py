"""What depends on the processor: one table, and the row of this machine.

The row is chosen by vendor and instruction sets, never by a measurement, so that all processes on a
machine compute the same bits. ``TRANSFORMER_PROCESSOR=KIND`` chooses another row. A constant that
is the same for all processors stands beside the code that it explains.
"""

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from transformer.common.errors import InputError, did_you_mean

VARIABLE = "TRANSFORMER_PROCESSOR"
"""The variable of the environment that names a kind."""


@dataclass(frozen=True)
class Processor:
    """A kind of processor.

    Attributes:
        kind: Its name.
        vendor: A part of the vendor's name; "" is any vendor.
        instructions: Instruction sets that it has, as Linux writes them, separated by spaces.
        onednn_from: Multiplications of a float32 product from which on oneDNN is faster than
            torch's choice, which is MKL on x86-64; None: never.
        int8: Torch's engine of int8 products.
        int8_onednn_from: Numbers of an int8 weight from which on oneDNN is taken instead; None:
            never. The number of rows chooses nothing: the engines round differently.
        seven_bits: Whether activations in int8 have seven bits: two products of eight bits are
            added in 16 bits, and may overflow.
        bfloat16: Whether it multiplies in bfloat16; None: unknown.
    """

    kind: str
    vendor: str
    instructions: str
    onednn_from: int | None = None
    int8: Literal["fbgemm", "qnnpack"] = "fbgemm"
    int8_onednn_from: int | None = None
    seven_bits: bool = False
    bfloat16: bool | None = False

    def int8_engine(self, numbers: int) -> str:
        """The engine of an int8 weight of so many numbers."""
        large = self.int8_onednn_from is not None and numbers >= self.int8_onednn_from
        return "onednn" if large else self.int8

    def __str__(self) -> str:
        float32 = "torch" if self.onednn_from is None else "oneDNN"
        engines = self.int8 if self.int8_onednn_from is None else f"{self.int8} and oneDNN"
        int8 = f"int8 by {engines} in {7 if self.seven_bits else 8} bits"
        bfloat16 = {True: "bfloat16", False: "no bfloat16", None: "bfloat16 unknown"}
        return f"{self.kind} (float32 by {float32}, {int8}, {bfloat16[self.bfloat16]})"


_KINDS = (
    # float32 measured: 250 GFLOP/s by oneDNN, which takes 10 to 30 microseconds to start, and 107
    # by MKL, which uses half of the vector width. int8 measured: oneDNN gains nothing.
    Processor(
        "amd-avx512",
        "AMD",
        "avx512_vnni avx512_bf16",
        onednn_from=2**20,
        bfloat16=True,
    ),
    # float32 measured: oneDNN was never 1.25 times as fast as MKL. int8 measured: fbgemm is faster
    # up to 64 rows; for more it is a guess.
    Processor("amd-avx2", "AMD", "avx2", seven_bits=True),
    # Measured: bfloat16, and MKL with transposed weights, not beside oneDNN. int8 is a guess, as
    # oneDNN has AMX and fbgemm has not.
    Processor("intel-amx", "Intel", "amx_int8 amx_bf16", int8_onednn_from=2**18, bfloat16=True),
    # These were never measured; what has to do with overflows follows from the instructions.
    Processor("intel-vnni", "Intel", "avx512_vnni"),
    Processor("intel-avx512", "Intel", "avx512f", seven_bits=True),
    # Some have avx_vnni, but fbgemm uses only avx512_vnni.
    Processor("intel-avx2", "Intel", "avx2", seven_bits=True),
    Processor("arm-bf16", "", "asimd bf16", int8="qnnpack", bfloat16=True),
    Processor("arm", "", "asimd", int8="qnnpack"),
    Processor("x86-avx2", "", "avx2", seven_bits=True, bfloat16=None),
    Processor("other", "", "", int8="qnnpack", bfloat16=None),
)

PROCESSORS = {each.kind: each for each in _KINDS}
"""The table; the first row that fits is chosen."""


@cache
def processor() -> Processor:
    """The kind of this machine, or the one that the environment names; or InputError."""
    named = os.environ.get(VARIABLE)
    if not named:
        return recognize(*_description())
    if named not in PROCESSORS:
        meant = did_you_mean(named, PROCESSORS)
        kinds = ", ".join(PROCESSORS)
        raise InputError(f"{VARIABLE}={named} is unknown{meant}; choose {kinds}")
    return PROCESSORS[named]


def recognize(vendor: str, instructions: frozenset[str]) -> Processor:
    """The first kind of the table with this vendor and no other instructions than these."""
    kinds = (each for each in PROCESSORS.values() if each.vendor in vendor)
    return next(each for each in kinds if instructions.issuperset(each.instructions.split()))


def _description() -> tuple[str, frozenset[str]]:
    """Vendor and instruction sets, without torch on Linux."""
    file = Path("/proc/cpuinfo")
    if file.exists():
        # The first processor; ARM has no vendor_id, and calls the flags features.
        lines = (line.partition(":") for line in file.read_text("utf-8", "replace").splitlines())
        fields: dict[str, str] = {}
        for name, _, value in lines:
            fields.setdefault(name.strip().lower(), value)
        flags = fields.get("flags") or fields.get("features") or ""
        return fields.get("vendor_id", ""), frozenset(flags.split())
    import torch

    # torch 2.11 does not have it: then the row is the one with the fewest instructions.
    known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    names = {"avx512_f": "avx512f"}
    there = {names.get(name, name) for name, has in known.items() if has is True}
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        there.add("avx2")
    arm = platform.machine().lower() in ("arm64", "aarch64")
    vendor = f"{known.get('cpu_name', '')} {platform.processor()}"
    return vendor, frozenset(there | ({"asimd"} if arm else set()))
