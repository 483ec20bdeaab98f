"""What training costs on paper is what the model computes and keeps."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.cost import BASE, BIG, Size
from benchmarks.gpu.measure import Bench
from benchmarks.gpu.models import built, model_config, size_of
from transformer.cli.config import compose_config, run_settings
from transformer.training.losses.cross_entropy import cross_entropy

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("name", "size"), [("base", BASE), ("big", BIG)])
def test_costs_are_those_of_the_model(name: str, size: Size, unchecked: None) -> None:
    bench = Bench(torch.device("meta"), ROOT)
    # The presets are read without Hydra.
    composed = compose_config("train", ["data=files", f"model={name}"])
    expected = run_settings(composed).model.sized(32_000, 32_000)
    assert model_config(bench, name) == expected
    model = built(bench, name, attention="eager")
    assert size_of(model.config) == size
    with torch.device("meta"):
        source = torch.ones(3, 20, dtype=torch.long)
        target = torch.ones(3, 30, dtype=torch.long)
    assert sum(weight.numel() for weight in model.parameters()) == size.parameters
    with FlopCounterMode(display=False) as counted:
        hidden = model(source, target).flatten(0, 1)
        loss = cross_entropy(hidden, model.projection.weight, target.flatten(), 0.1)
        assert counted.get_total_flops() == 3 * size.forward_flops(20, 30)
        loss.backward()
    assert counted.get_total_flops() == 3 * size.training_flops(20, 30)


def test_the_page_has_the_tables_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["cost"]) == 0
    page = (ROOT / "benchmarks" / "gpu" / "README.md").read_text(encoding="utf-8")
    (_, costs) = page.split("<!-- cost: begin -->\n")
    assert costs.split("<!-- cost: end -->")[0] == capsys.readouterr().out
