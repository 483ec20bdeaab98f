"""The launches and bytes of an update are those in benchmarks/gpu/README.md."""

from pathlib import Path

import pytest

from benchmarks.training.launches import launches

PAGE = Path(__file__).parents[3] / "benchmarks" / "gpu" / "README.md"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("model", ["tiny", pytest.param("base", marks=pytest.mark.thorough)])
def test_the_page_has_the_launches_and_bytes_of_an_update(model: str) -> None:
    found = launches(f"model={model}", "model.positions=sinusoidal", "loss.chunk=32768")
    page = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in page if line.startswith(f"| `model={model}`: ")]
    now = [row.split(" | ")[-1].removesuffix(" |") for row in rows]
    assert now == [f"{found.counts.total():,}", f"{found.bytes / 1e6:,.0f}"]
