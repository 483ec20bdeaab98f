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


def test_a_module_that_nobody_imported_is_not_run(module: str) -> None:
    config = tiny_config(feed_forward=f"{module}:Doubled")
    with pytest.raises(InputError, match=rf"model\.feed_forward={module}:Doubled is code"):
        build_transformer(config)
    assert not Path("imported").exists()


def test_a_checkpoint_does_not_choose_among_the_classes_of_libraries(module: str) -> None:
    name = "transformer.model.layers.feedforward:FeedForward"
    with pytest.raises(InputError, match=rf"model\.feed_forward={name} is code of a user"):
        build_transformer(tiny_config(feed_forward=name))


@pytest.mark.parametrize("trusted", [False, True])
def test_what_is_imported_or_trusted_is_built(
    module: str, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(feed_forward=f"{module}:Doubled")
    if trusted:
        monkeypatch.setenv(TRUST, "true")
    else:
        import_code([("model.feed_forward", f"{module}:Doubled")])
    model = build_transformer(config)
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
    for kind in ("metric", "utility"):
        function = "def same(hypotheses, references):\n    return [1.0 for _ in hypotheses]\n"
        Path(f"{module}_{kind}.py").write_text(function)
    [own] = score(["a"], ["b"], config=MetricsConfig(test=(), custom=f"{module}_metric:same"))[:1]
    assert own.value == 1.0
    assert utility_named(f"{module}_utility:same")
    with pytest.raises(InputError, match=r"math:pi cannot be imported \(pi is no function\)"):
        utility_named("math:pi")


def test_a_metric_may_give_any_iterable_of_numbers(module: str) -> None:
    Path(f"{module}_lazy.py").write_text("def ones(texts, right): return (1 for _ in texts)\n")
    [own, *_] = score(["a"], ["b"], config=MetricsConfig(test=(), custom=f"{module}_lazy:ones"))
    assert own.value == 1.0


@pytest.mark.parametrize(
    ("name", "reason"),
    [("{}:Gone", "is no Linear"), ("{}:Doubled", "is no Linear"), ("torch:cat", "is no Linear")],
)
def test_another_kind_of_thing_is_refused(module: str, name: str, reason: str) -> None:
    name = name.format(module)
    import_code([("key", name)])
    with pytest.raises(InputError, match=rf"key={name} {reason}"):
        own_class("key", name, nn.Linear)


def test_an_import_that_fails_is_one_line(module: str) -> None:
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
