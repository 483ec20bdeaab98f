"""Plain values become typed settings; a wrong value is an error that names its key."""

import math
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tests.helpers.checks import no_checks
from tests.helpers.model.models import tiny_config
from transformer import settings
from transformer.cli.config import compose_config, run_settings
from transformer.common.errors import InputError
from transformer.common.schema import Range, typed
from transformer.settings.corpora import TextConfig
from transformer.settings.data import AugmentationConfig, CorpusConfig, DataConfig, DenoisingConfig
from transformer.settings.decoding import length_penalty
from transformer.settings.evaluation import CompareConfig, EvaluateConfig, StressConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig, dotted_values
from transformer.settings.tokenizer import TokenizerConfig
from transformer.settings.training import (
    LossConfig,
    OptimizerConfig,
    RecoveryConfig,
    ScheduleConfig,
    TrainerConfig,
)
from transformer.tasks.registry import task_class


@dataclass(frozen=True)
class Inner:
    size: int
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    rate: float
    name: str
    flag: bool
    choice: Literal["a", "b"]
    pair: tuple[float, float]
    files: str | Sequence[str] | None
    limit: float | None = None
    inner: Mapping[str, Inner] | None = None


VALUES: dict[str, Any] = {
    "count": 3,
    "rate": 0.5,
    "name": "x",
    "flag": True,
    "choice": "b",
    "pair": [0.9, 1],
    "files": ["a.en", "a.de"],
}


def test_values_get_the_types_of_the_fields() -> None:
    inner = {"x": {"size": 1, "names": ["a"]}, 2: {"size": 2}}
    outer = typed(Outer, VALUES | {"rate": 1, "limit": 2, "inner": inner}, "here")
    expected = {"x": Inner(1, ("a",)), "2": Inner(2)}
    assert outer == Outer(3, 1.0, "x", True, "b", (0.9, 1.0), ("a.en", "a.de"), 2.0, expected)
    assert all(type(value) is float for value in (outer.rate, outer.limit, *outer.pair))
    for files in ("a.tsv", None):
        assert typed(Outer, VALUES | {"files": files}, "here").files == files


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("count", 3.0, "here.count=3.0 must be a whole number"),
        ("count", True, "here.count=True must be a whole number"),
        ("count", None, "here.count=null must be a whole number"),
        ("rate", "fast", "here.rate='fast' must be a number"),
        ("flag", 1, "here.flag=1 must be true or false"),
        ("flag", MISSING, "here.flag is missing"),
        ("choice", "c", "here.choice='c' must be a or b"),
        ("pair", [1.0], "here.pair=[1.0] must be a list of 2"),
        ("files", ["a", 3], "here.files=['a', 3] must be a text or a list or null"),
        ("limit", "x", "here.limit='x' must be a number or null"),
        ("cuont", 3, "here.cuont is not a setting of here (did you mean count?)"),
        ("inner", {"x": {"szie": 1}}, "here.inner.x.szie is not a setting of here.inner.x (did"),
        ("inner", {"x": {}}, "here.inner.x.size is missing"),
        ("inner", {"x": 3}, "here.inner.x=3 must be a mapping, {KEY: VALUE}"),
        ("inner", ["x"], "here.inner=['x'] must be a mapping, {KEY: VALUE} or null"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, message: str) -> None:
    values = {k: v for k, v in (VALUES | {key: value}).items() if v is not MISSING}
    with pytest.raises(InputError) as caught:
        typed(Outer, values, "here")
    assert str(caught.value).startswith(message)


def _ranges(hint: Any) -> Iterator[tuple[type, Range]]:
    """The numbers of an annotation, alone or in a union or list, with their ranges."""
    for option in get_args(hint):
        yield from _ranges(option)
    for allowed in getattr(hint, "__metadata__", ()):
        if isinstance(allowed, Range):
            yield hint.__origin__, allowed


def _outside(kind: type, allowed: Range) -> Iterator[float]:
    """The nearest numbers of this kind below and above the range."""
    step = 1 if kind is int else 1e-6
    for bound, value in (
        (allowed.least, allowed.least - step),
        (allowed.most, allowed.most + step),
        (allowed.above, allowed.above),
        (allowed.below, allowed.below),
    ):
        if math.isfinite(bound):
            yield kind(value)


def _required(kind: Any) -> dict[str, Any]:
    """Texts for the fields without a default."""
    hints = get_type_hints(kind)
    return {
        field.name: ["a", "b"] if get_origin(hints[field.name]) is Sequence else "a"
        for field in fields(kind)
        if field.default is field.default_factory is MISSING
    }


def test_a_number_outside_of_the_range_of_its_field_is_refused() -> None:
    cases = [
        (kind, field.name, value)
        for module in pkgutil.iter_modules(settings.__path__, f"{settings.__name__}.")
        for kind in vars(import_module(module.name)).values()
        if is_dataclass(kind) and kind.__module__ == module.name
        for field in fields(kind)
        for number, allowed in _ranges(get_type_hints(kind, include_extras=True)[field.name])
        for value in _outside(number, allowed)
    ]
    assert len(cases) > 150
    for kind, key, value in cases:
        with pytest.raises(InputError, match=rf"\b{key}=.* must be "):
            typed(kind, _required(kind) | {key: value}, "x")


@pytest.mark.parametrize(
    ("group", "changes", "message"),
    [
        ("model", {"decoder_layers": -1}, "model.decoder_layers=-1 must be at least 0"),
        ("model", {"max_length": 10**8}, "model.max_length=100000000 must be from 1 to 1048576"),
        ("model", {"dropout": 1.0}, "model.dropout=1.0 must be at least 0 and below 1"),
        ("model", {"layer_drop": float("nan")}, "model.layer_drop=nan must be at least 0 and bel"),
        ("model", {"pad": 24}, "model.pad=24 is outside of a vocabulary"),
        ("model", {"encoder_layer": "a:B", "convolution_window": 3}, "model.encoder_layer has no"),
        ("model", {"num_heads": 3}, "model.d_model=16 is not a multiple of model.num_heads=3"),
        ("model", {"d_model": 15, "num_heads": 5}, "model.d_model=15 must be even, and at least 2"),
        ("model", {"num_kv_heads": 3}, "model.num_kv_heads=3 does not divide model.num_heads=4"),
        ("model", {"positions": "rotary", "head_dim": 3}, "a head of width 3 must be even"),
        ("model", {"positions": "relative", "relative_buckets": 6}, "model.relative_buckets=6 mu"),
        (
            "model",
            {"positions": "relative", "relative_max_distance": 4},
            "model.relative_max_distance=4 must be more than half of model.relative_buckets=8",
        ),
        ("model", {"attention": "eager", "sdpa_backend": "math"}, "model.sdpa_backend=math is a k"),
        ("model", {"attention": "flex", "attention_dropout": 0.1}, "model.attention=flex drops no"),
        ("model", {"source_vocab_size": 23}, "model.tie_embeddings=all needs one vocabulary"),
        ("optimizer", {"lr": 0.0}, "optimizer.lr=0.0 must be above 0"),
        ("optimizer", {"betas": (0.9, 1.0)}, "optimizer.betas=[0.9, 1.0] must be from 0 and below"),
        ("schedule", {"floor": 1.5}, "schedule.floor=1.5 must be from 0 to 1"),
        ("recovery", {"lr_factor": 1.5}, "recovery.lr_factor=1.5 must be above 0 and at most 1"),
        ("loss", {"chunk": 0, "bfloat16": True}, "loss.bfloat16=true needs the fused form"),
        (
            "loss",
            {"consistency": "r_drop"},
            "loss.consistency=r_drop needs loss.consistency_weight",
        ),
        (
            "loss",
            {"consistency": "r_drop", "consistency_weight": 5.0, "alignment_weight": 0.1},
            "loss.alignment_weight=0.1 guides one pass",
        ),
        ("trainer", {"max_time": 3600}, "trainer.max_time=3600 must be DAYS:HOURS:MINUTES:SECONDS"),
        ("trainer", {"max_steps": 0}, "trainer.max_steps=0 must be at least 1; -1 sets no bound"),
        ("data", {"max_ratio": 0.5}, "data.max_ratio=0.5 must be at least 1"),
        ("data", {"corpora": {}}, "data.corpora={} names none"),
        (
            "data",
            {"corpora": {"big": {"test_size": -1}}},
            "data.corpora.big.test_size=-1 must be at",
        ),
        ("data", {"corpora": {"a": {"tag": "b c"}}}, "data.corpora.a.tag='b c' cannot be a name"),
        (
            "data",
            {"target_tag": True, "corpora": {"a": {"target": "b c"}}},
            "data.corpora.a.target='b c' cannot be a name or tag",
        ),
        ("data", {"document_key": "id"}, "data.document_key needs data.documents=N"),
        ("data", {"streaming": True}, "data.streaming=true reads files of one corpus of single"),
        ("data", {"corpora": {"a": {"weight": 1.0}, "b": {}}}, "data.corpora.b.weight is missing"),
        (
            "denoising",
            {"permute": True},
            "data.denoising.permute needs data.denoising.objective=in",
        ),
        (
            "augmentation",
            {"upper": 0.6, "lower": 0.6},
            "the probabilities of augmentation have the",
        ),
        ("tokenizer", {"vocab_size": 4}, "tokenizer.vocab_size=4 must be at least 5"),
        ("tokenizer", {"algorithm": "word"}, "tokenizer.algorithm='word' must be unigram or bpe"),
        ("tokenizer", {"vocab_size": None}, "tokenizer.vocab_size=null: a vocabulary of bpe needs"),
        (
            "tokenizer",
            {"algorithm": "char", "sampling": 0.1},
            "tokenizer.sampling draws subwords of",
        ),
        ("tokenizer", {"features": ";"}, "tokenizer.features are read with tokenizer.source=char"),
        ("tokenizer", {"algorithm": "char", "features": ""}, "tokenizer.features='' separates not"),
        ("tokenizer", {"algorithm": "words", "decompose": True}, "tokenizer.decompose is for char"),
        ("tokenizer", {"algorithm": "char", "sentinels": 9}, "tokenizer.add and sentinels are for"),
        ("tokenizer", {"add": ["a b"]}, "tokenizer.add has 'a b'; a word to add has no spaces"),
        ("tokenizer", {"algorithm": "sentencepiece"}, "tokenizer=sentencepiece reads a vocabulary"),
        (
            "tokenizer",
            {"algorithm": "bytes", "file": "x"},
            "tokenizer.file is not read with tokeni",
        ),
        (
            "tokenizer",
            {"algorithm": "huggingface", "file": ["a", "b", "c"]},
            "tokenizer.file must be one file, or [SOURCE,TARGET]",
        ),
        (
            "tokenizer",
            {"algorithm": "bytes", "sentinels": 126},
            "tokenizer=bytes has 125 sentinels",
        ),
        (
            "tokenizer",
            {"algorithm": "bytes", "add": ["x"]},
            "tokenizer=bytes has 125 sentinels, and",
        ),
    ],
)
def test_values_that_contradict_are_refused(
    group: str, changes: dict[str, Any], message: str
) -> None:
    kinds: dict[str, Any] = {
        "augmentation": AugmentationConfig,
        "data": DataConfig,
        "denoising": DenoisingConfig,
        "loss": LossConfig,
        "model": ModelConfig,
        "optimizer": OptimizerConfig,
        "recovery": RecoveryConfig,
        "schedule": ScheduleConfig,
        "tokenizer": TokenizerConfig,
        "trainer": TrainerConfig,
    }
    values = tiny_config().to_dict() if group == "model" else {}
    with pytest.raises(InputError) as caught:
        typed(kinds[group], values | changes, group)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_model": 15, "num_heads": 5, "positions": "learned"},
        {"source_vocab_size": 9, "tie_embeddings": "decoder"},
        {"activation": "gelu", "dropout": 0.3},
    ],
)
def test_a_model_config_comes_back_from_its_plain_values(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    assert typed(ModelConfig, config.to_dict(), "model") == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=x"], "seed='x' must be a whole number"),
        (["seed=4294967296"], "seed=4294967296 must be from 0 to 4294967295"),
        (["optimizer.betas=[0.9]"], r"optimizer\.betas=\[0\.9\] must be a list of 2"),
        (["schedule.name=step"], r"schedule\.name='step' must be inverse_sqrt or noam or"),
        (["trainer.max_steps=-1"], r"schedule\.total=-1: a cosine needs its last update"),
        (["model.lora_rank=4"], r"set finetune_from=RUN"),
        (
            ["trainer.compile=layers", "model.decoder_pattern=sliding"],
            r"cannot compile model\.attention=auto",
        ),
        (["trainer=fsdp", "callbacks.ema_decay=0.9"], r"set callbacks\.ema_decay=0"),
        (["trainer=fsdp", "model.layer_drop=0.1"], r"model\.layer_drop=0"),
        (["decoding=mbr", "decoding.utility=operator:eq"], r"utility=operator:eq is a program"),
    ],
)
def test_the_keys_of_a_run_are_checked(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_settings(compose_config("train", arguments))


def test_a_cosine_ends_with_the_run_that_it_is_for() -> None:
    short = RunConfig(schedule=ScheduleConfig("cosine"), trainer=TrainerConfig(max_steps=7))
    longer = replace(short, trainer=TrainerConfig(max_steps=9))
    chosen = replace(longer, schedule=ScheduleConfig("cosine", total=8))
    for config, total in ((short, 7), (longer, 9), (chosen, 8)):
        assert config.schedule_to_the_end == ScheduleConfig("cosine", total=total)


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (RunConfig, {"optimizer": {"lr": -1.0}}, r"optimizer\.lr=-1\.0 must be above 0"),
        (EvaluateConfig, {"checkpoint": "RUN", "batch_tokens": 0}, r"^batch_tokens=0 must be at"),
        (StressConfig, {"checkpoint": "RUN", "sentences": "all"}, r"sentences='all' must be a wh"),
        (TextConfig, {"output": "x", "splits": 5}, r"splits=5 must be a list or null"),
    ],
)
def test_a_config_of_a_program_is_checked(kind: type, values: dict[str, Any], message: str) -> None:
    with no_checks(), pytest.raises(InputError, match=message):
        kind(**values)


def test_a_program_gives_paths_and_lists_as_it_has_them() -> None:
    config: Any = {"checkpoint": Path("RUN"), "reference": ["a", Path("b")], "output": "~/x"}
    systems: Any = ["hf://USER/MODEL", Path("RUN")]
    with no_checks():
        evaluated, compared = EvaluateConfig(**config), CompareConfig(runs=systems)
    assert evaluated.checkpoints == ("RUN",)
    assert evaluated.reference == (Path("a"), Path("b"))
    assert evaluated.output == Path.home() / "x"
    assert compared.runs == ("hf://USER/MODEL", "RUN")


def test_keys_reach_no_corpus_with_a_dot_in_its_name() -> None:
    corpora = {"news": CorpusConfig(), "news.2019": CorpusConfig()}
    values = dotted_values(RunConfig(data=DataConfig(corpora=corpora)))
    assert "data.corpora.news.tag" in values
    assert not any(key.startswith("data.corpora.news.2019") for key in values)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InputError, match=r"task=nix must be translation or .*, or MODULE:CLASS"):
        task_class("nix")


def test_own_text_is_given_as_a_pair_or_as_one_file() -> None:
    arguments = ["data=files", "data.train=[a.en,a.de]", "data.test=b.tsv"]
    data = run_settings(compose_config("train", arguments)).data
    assert list(data.train or ()) == ["a.en", "a.de"]
    assert data.test == "b.tsv"


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"),
    [(1, 0.6, 1.0), (7, 0.0, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0), (7, -1.0, 0.5)],
)
def test_length_penalty(length: int, alpha: float, penalty: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(penalty)
