"""Code of a user is imported only where the user has named it, or trusts who did."""

import sys
from pathlib import Path

import pytest
from torch import nn

from tests.helpers.model.models import tiny_config, tiny_payload
from transformer.checkpoint.checkpoint import PORTABLE, load_checkpoint, write_payload
from transformer.checkpoint.trust import named_classes, needs_trust
from transformer.common.errors import InputError
from transformer.common.own_code import TRUST, import_code, own_class
from transformer.decoding.mbr import utility_named
from transformer.evaluation.metrics import score
from transformer.model.build import build_transformer
from transformer.settings.metrics import MetricsConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig
from transformer.settings.training import CallbacksConfig


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the working folder that notes its import; nobody is trusted."""
    name = f"layers_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "import pathlib\nfrom torch import nn\npathlib.Path('imported').touch()\n"
        "class Doubled(nn.Module):\n"
        "    def __init__(self, d_model, ffn_dim, *, activation, dropout):\n"
        "        super().__init__()\n"
        "    def forward(self, hidden):\n"
        "        return 2 * hidden\n"
    )
    monkeypatch.chdir(tmp_path)
    # As in a console script, whose path lacks the working folder.
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    monkeypatch.delenv(TRUST)
    return name


def test_code_that_nobody_imported_or_trusts_is_not_run(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"{module}:Doubled"
    # A checkpoint does not choose among the classes of libraries, either.
    for name in (own, "transformer.model.layers.feedforward:FeedForward"):
        with pytest.raises(InputError, match=rf"model\.feed_forward={name} is code of a user"):
            build_transformer(tiny_config(feed_forward=name))
    assert not Path("imported").exists()
    import_code([("model.feed_forward", own)])
    model = build_transformer(tiny_config(feed_forward=own))
    assert {type(layer.feed_forward).__name__ for layer in model.encoder.layers} == {"Doubled"}


def test_a_trusted_checkpoint_brings_its_layers(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TRUST, raising=False)
    base = "from transformer import FeedForward\n"
    Path(f"{module}_layers.py").write_text(f"{base}class Mine(FeedForward):\n    pass\n")
    payload, file = tiny_payload(), tmp_path / "own.ckpt"
    payload[PORTABLE]["config"]["model"]["feed_forward"] = f"{module}_layers:Mine"
    write_payload(payload, file)
    with pytest.raises(InputError, match="is code of a user; add trust=true"):
        load_checkpoint(file)
    layer = load_checkpoint(file, trusted=True).model.encoder.layers[0]
    assert type(layer.feed_forward).__name__ == "Mine"


def test_metrics_and_utilities_are_found_beside_the_text(module: str) -> None:
    # A metric may give any iterable of numbers.
    metric = "def ones(texts, references): return (1 for _ in texts)\n"
    Path(f"{module}_metric.py").write_text(metric)
    config = MetricsConfig(test=(), custom=f"{module}_metric:ones")
    assert score(["a"], ["b"], config=config)[0].value == 1.0
    utility = "def same(hypotheses, references): return [1.0 for _ in hypotheses]\n"
    Path(f"{module}_utility.py").write_text(utility)
    assert utility_named(f"{module}_utility:same")
    with pytest.raises(InputError, match=r"math:pi cannot be imported \(pi is no function\)"):
        utility_named("math:pi")


def test_a_wrong_name_is_one_line(module: str) -> None:
    for name in (f"{module}:Gone", f"{module}:Doubled", "torch:cat"):
        import_code([("key", name)])
        with pytest.raises(InputError, match=rf"key={name} is no Linear"):
            own_class("key", name, nn.Linear)
    Path(f"{module}_bad.py").write_text("1 / 0")
    for name in (f"{module}_bad", "no_such_module"):
        with pytest.raises(InputError, match=rf"task={name}:X cannot be imported \(\w+Error: "):
            import_code([("task", f"{name}:X")])


def test_a_config_needs_trust_for_each_class_that_it_names(module: str) -> None:
    run = RunConfig(
        task="a:Task",
        model=ModelConfig(encoder_layer="b:Layer"),
        callbacks=CallbacksConfig(own=("c:Callback",)),
    )
    named = [
        ("task", "a:Task"),
        ("model.encoder_layer", "b:Layer"),
        ("callbacks.own", "c:Callback"),
    ]
    assert named_classes(run) == named
    assert needs_trust(run, {"task"}) == named[1:]
    assert named_classes(RunConfig()) == []
