"""The row of the table is chosen by what the processor is."""

import pytest

from transformer.common.errors import InputError
from transformer.common.processor import VARIABLE, processor, recognize

ZEN2 = "sse4_2 avx avx2 fma bmi2"
ZEN4 = f"{ZEN2} avx512f avx512bw avx512_bf16 avx512_vnni"


@pytest.mark.parametrize(
    ("vendor", "flags", "kind"),
    [
        ("AuthenticAMD", ZEN4, "amd-avx512"),
        ("AuthenticAMD", ZEN2, "amd-avx2"),
        ("GenuineIntel", f"{ZEN4} amx_tile amx_int8 amx_bf16", "intel-amx"),
        ("GenuineIntel", f"{ZEN2} avx512f avx512_vnni", "intel-vnni"),
        ("GenuineIntel", f"{ZEN2} avx512f", "intel-avx512"),
        ("GenuineIntel", f"{ZEN2} avx_vnni", "intel-avx2"),
        ("HygonGenuine", ZEN2, "x86-avx2"),
        ("", "fp asimd asimddp bf16 i8mm", "arm-bf16"),
        ("", "fp asimd asimddp", "arm"),
        ("GenuineIntel", "sse4_2", "other"),
    ],
)
def test_a_processor_is_recognized(vendor: str, flags: str, kind: str) -> None:
    assert recognize(vendor, frozenset(flags.split())).kind == kind


def test_the_environment_names_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "arm")
    assert processor.__wrapped__().kind == "arm"
    monkeypatch.setenv(VARIABLE, "amd-avx5")
    with pytest.raises(InputError, match=r"amd-avx5 is unknown \(did you mean amd-avx512\?\)"):
        processor.__wrapped__()
