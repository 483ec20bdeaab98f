"""The benchmark of a card runs on a CPU, too, and its costs on paper are those of the model."""

import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, gpu_steps
from benchmarks.gpu_cost import BASE, BIG, TOKENS, Assumptions, Size, cost_tables
from benchmarks.gpu_decoding import decode
from benchmarks.gpu_runs import SYNCHRONIZING, logged_speed, waits
from benchmarks.gpu_steps import SETTINGS, BareStep, Bench, made_batches
from transformer.model.build import build_transformer
from transformer.training.config import sized_model
from transformer.training.losses.cross_entropy import cross_entropy

ROOT = Path(__file__).parents[2]
SMALL = (
    *("model.d_model=32", "model.num_heads=2", "model.ffn_dim=64", "precision=bf16-mixed"),
    *("model.encoder_layers=1", "model.decoder_layers=1"),
)
COLUMNS = {
    "env": {"what", "found"},
    "shapes": {"batches", "ms an update"},
    "loss": {"chunk", "ms", "peak GiB"},
    "attention": {"length", "mask", *gpu.gpu_kernels.KERNELS},
    "step": {
        *("layers", "tokens of a batch", "target tokens/s", "TFLOP/s"),
        *("share of large products", "launches", "peak GiB"),
    },
    "syncs": {"line", "waits an update"},
    "train": {"what", "tokens/s"},
    "oom": {
        *("tokens of a batch", "GiB", "updates made", "peak GiB"),
        "largest batch in one piece, both sides",
    },
    "resume": {"found"},
    "decode": {"engine", "sentences", "sentences/s"},
    "ddp": {"cards", "target tokens/s", "share of linear"},
}
ROW, TORN = '{"case": "env", "rows": [1]}', '{"case": "env", "rows": [{"a": 1}'
SLOW = {"resume", "ddp"}
"""They start several processes."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    quick = Bench(torch.device("cpu"), tmp_path_factory.mktemp("gpu"), SMALL, turns=1, warm_up=1)
    return replace(quick, budgets=(256,), tokens=256, vocabulary=400, pairs=600, matrix=64)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in gpu.CASES]
)
def test_a_case_measures(name: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    few = gpu.Case(lambda bench: decode(bench, counts=(2, 4)), 1)
    monkeypatch.setitem(gpu.CASES, "decode", few)
    # Compiled layers: tests/parity/test_compile.py.
    monkeypatch.setattr(gpu_steps, "LAYERS", {"eager": ()})
    line = gpu.result(name, replace(bench, updates=2))
    assert "why" not in line
    assert set(line["rows"][0]) == COLUMNS[name]
    values = [value for row in line["rows"] for value in row.values()]
    assert all(value >= 0 for value in values if isinstance(value, float))
    speeds = [row[key] for row in line["rows"] for key in row if key.endswith(("/s", "ms"))]
    assert all(speed > 0 for speed in speeds)


def test_a_case_that_fails_says_why(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(bench: Bench) -> gpu.Rows:
        raise RuntimeError("no\nkernel")

    monkeypatch.setitem(gpu.CASES, "loss", gpu.Case(fail, 1))
    assert gpu.result("loss", bench)["why"] == "RuntimeError: no kernel"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"print('x'); print('{ROW}')", {"case": "env", "rows": [1]}),
        (f"print('{ROW}'); print('{{x}}')", {"case": "env", "rows": [1]}),
        ("", {"case": "env", "why": "it has ended with 0"}),
        ("import sys; sys.exit(3)", {"case": "env", "why": "it has ended with 3"}),
        ("input()", {"case": "env", "why": "it takes more than 2 seconds"}),
        (
            f"import time; print('{ROW}'); print('{TORN}', end='', flush=True); time.sleep(60)",
            {"case": "env", "rows": [1], "why": "it takes more than 2 seconds"},
        ),
    ],
)
def test_the_line_of_a_process(code: str, expected: dict[str, object]) -> None:
    waiting = "import time; time.sleep(60)" if code == "input()" else code
    assert gpu.result_of_process("env", [sys.executable, "-c", waiting], 2) == expected


def test_a_page_has_what_was_and_was_not_measured() -> None:
    rows = [{"a": 1234, "b": 1234.5}, {"a": "x|y", "c": 0.12345}]
    lines = gpu.tables([{"case": "env", "rows": rows}, {"case": "loss", "why": "broken"}])
    assert lines[:7] == [
        "**env**",
        "",
        "| a | b | c |",
        "| --- | --- | --- |",
        "| 1,234 | 1,234 |  |",
        "| x\\|y |  | 0.123 |",
        "",
    ]
    assert len(lines) == 7 + 2 + len(gpu.CASES) - 1
    assert {"| loss | broken |", f"| step | {gpu.UNMEASURED} |"} < set(lines)
    # All cases fit ten minutes.
    assert sum(case.seconds for case in gpu.CASES.values()) <= 600


@pytest.mark.parametrize("case", ["env", "all"])
def test_without_a_card_one_line_says_so(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py", case])
    assert gpu.main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: benchmarks/gpu.py {case} needs a CUDA card")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x"])
def test_a_rate_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "cost", f"--tflops={value}"])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()


def test_waits_are_counted_by_line(tmp_path: Path) -> None:
    def warned(text: str, line: int) -> warnings.WarningMessage:
        return warnings.WarningMessage(UserWarning(text), UserWarning, "/a/loss.py", line)

    caught = [warned(SYNCHRONIZING, 7), warned("other", 7), *[warned(SYNCHRONIZING, 9)] * 3]
    assert waits(caught, updates=2) == [
        {"line": "all", "waits an update": 2.0},
        {"line": "loss.py:9", "waits an update": 1.5},
        {"line": "loss.py:7", "waits an update": 0.5},
    ]
    # The first logged speed does not count.
    file = tmp_path / "metrics.csv"
    file.write_text("step,train/tokens_per_second\n1,5\n2,\n3,30\n4,10\n5,20\n")
    assert logged_speed(file) == 20


def test_batches_keep_their_budget(bench: Bench) -> None:
    for batch in made_batches(bench, 2000, 20):
        assert 1500 < batch.source.numel() <= 2000
        assert batch.target_output.numel() <= 2000


@pytest.fixture(params=["base", "big"])
def sizes(request: pytest.FixtureRequest) -> Iterator[tuple[Size, Bench]]:
    """A size on paper, and where the preset of its name is configured."""
    settings = (f"model={request.param}", "model.attention=eager")
    yield {"base": BASE, "big": BIG}[request.param], Bench(torch.device("cpu"), ROOT, settings)


def test_costs_are_those_of_the_model(sizes: tuple[Size, Bench], unchecked: None) -> None:
    size, bench = sizes
    config = bench.config()
    assert Size.of(config.model, size.vocabulary) == size
    with torch.device("meta"):
        model = build_transformer(sized_model(config.model, size.vocabulary, size.vocabulary))
        source, target = torch.ones(3, 20, dtype=torch.long), torch.ones(3, 30, dtype=torch.long)
    assert sum(weight.numel() for weight in model.parameters()) == size.parameters
    with FlopCounterMode(display=False) as counted:
        hidden = model(source, target).flatten(0, 1)
        loss = cross_entropy(hidden, model.projection.weight, target.flatten(), 0.1)
        assert counted.get_total_flops() == 3 * size.forward_flops(20, 30)
        loss.backward()
    assert counted.get_total_flops() == 3 * size.training_flops(20, 30)


def test_activations_are_near_what_autograd_keeps(bench: Bench) -> None:
    step = BareStep(replace(bench, settings=SETTINGS, vocabulary=1000))
    (batch,) = made_batches(replace(bench, vocabulary=1000), 500, 1)
    weights = {weight.untyped_storage().data_ptr() for weight in step.module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def see(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(see, lambda tensor: tensor),
    ):
        step.module.model(batch.source, batch.target_input)
    total = sum(one.nbytes() for pointer, one in kept.items() if pointer not in weights)
    layers = step.size.parameters - step.size.vocabulary * step.size.width
    activations = total - 2 * layers  # autocast keeps a copy of the weights, too
    assert activations / batch.positions * 2 == pytest.approx(BASE.activation_bytes, rel=0.1)


def test_costs_are_those_of_the_assumptions() -> None:
    known = Assumptions(nvlink=100.0, adapter=10.0, adapters=2)
    size = Size(width=1000, ffn=0, layers=0, vocabulary=250_000)  # 1 GB of gradients
    seconds = {cards: known.all_reduce_seconds(size, cards) for cards in (1, 2, 8, 16, 64)}
    assert seconds == pytest.approx(
        {
            1: 0.0,
            2: 0.01,
            8: 2 * 7 / 8 / 100,
            16: 2 * 7 / 8 / 100 + 1 / 20,
            64: 2 * 7 / 8 / 100 + 2 * 7 / 8 / 20,
        }
    )
    compute = known.compute_seconds(BASE, TOKENS)
    assert compute * known.tflops * 1e12 == pytest.approx(TOKENS * BASE.flops_a_token)
    # Each assumption counts.
    given = Assumptions()
    changes = {"tflops": 1.0, "price": 1.0, "nvlink": 1.0, "adapter": 1.0, "adapters": 8.0}
    tables = [cost_tables(replace(given, **{name: value})) for name, value in changes.items()]
    runs = ["\n".join(lines[-6:]) for lines in (cost_tables(given), *tables)]
    assert len(set(runs)) == 1 + len(changes)


def test_the_page_has_the_tables_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "cost"])
    assert gpu.main() == 0
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    (_, costs) = page.split("<!-- cost: begin -->\n")
    assert costs.split("<!-- cost: end -->")[0] == capsys.readouterr().out
    measured = page.split("<!-- measured: begin -->")[1].split("<!-- measured: end -->")[0]
    assert all(f"**{name}**" in measured or f"| {name} |" in measured for name in gpu.CASES)
    assert all(f"| `{name}` |" in page for name in gpu.CASES)
