"""Plain values become typed settings; a wrong value is an error that names its key."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.helpers.checks import no_checks
from tests.helpers.model.models import tiny_config
from transformer.cli.config import compose_config, run_settings
from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.settings.corpora import TextConfig
from transformer.settings.data import AugmentationConfig, CorpusConfig, DataConfig, DenoisingConfig
from transformer.settings.decoding import length_penalty
from transformer.settings.evaluation import CompareConfig, EvaluateConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig, dotted_values
from transformer.settings.tokenizer import TokenizerConfig
from transformer.settings.training import (
    LossConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainerConfig,
)


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
    assert typed(Outer, VALUES | {"files": "a.tsv"}, "here").files == "a.tsv"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("count", 3.0, "here.count=3.0 must be a whole number"),
        ("count", True, "here.count=True must be a whole number"),
        ("rate", "fast", "here.rate='fast' must be a number"),
        ("flag", 1, "here.flag=1 must be true or false"),
        ("flag", MISSING, "here.flag is missing"),
        ("choice", "c", "here.choice='c' must be a or b"),
        ("pair", [1.0], "here.pair=[1.0] must be a list of 2"),
        ("files", ["a", 3], "here.files=['a', 3] must be a text or a list or null"),
        ("cuont", 3, "here.cuont is not a setting of here (did you mean count?)"),
        ("inner", {"x": {"szie": 1}}, "here.inner.x.szie is not a setting of here.inner.x (did"),
        ("inner", {"x": 3}, "here.inner.x=3 must be a mapping, {KEY: VALUE}"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, message: str) -> None:
    values = {k: v for k, v in (VALUES | {key: value}).items() if v is not MISSING}
    with pytest.raises(InputError) as caught:
        typed(Outer, values, "here")
    assert str(caught.value).startswith(message)


R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}
CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("model", {"decoder_layers": -1}, "model.decoder_layers=-1 must be at least 0"),
    ("model", {"max_length": 10**8}, "model.max_length=100000000 must be from 1 to 1048576"),
    ("model", {"dropout": 1.0}, "model.dropout=1.0 must be at least 0 and below 1"),
    ("optimizer", {"lr": 0.0}, "optimizer.lr=0.0 must be above 0"),
    # A weight without a gradient, as that of padding, would become 0 / 0.
    ("optimizer", {"eps": 0.0}, "optimizer.eps=0.0 must be above 0"),
    ("model", {"pad": 24}, "model.pad=24 is outside"),
    ("model", {"encoder_layer": "a:B", "convolution_window": 3}, "model.encoder_layer"),
    ("model", {"num_heads": 3}, "model.d_model=16 is not a multiple of model.num_heads=3"),
    ("model", {"d_model": 15, "num_heads": 5}, "model.d_model=15 must be even"),
    ("model", {"num_kv_heads": 3}, "model.num_kv_heads=3 does not divide"),
    ("model", {"positions": "rotary", "head_dim": 3}, "a head of width 3 must be even"),
    ("model", {"positions": "relative", "relative_buckets": 6}, "model.relative_buckets=6"),
    ("model", {"positions": "relative", "relative_max_distance": 4}, "model.relative_max_distance"),
    ("model", {"attention": "eager", "sdpa_backend": "math"}, "model.sdpa_backend=math"),
    ("model", {"attention": "flex", "attention_dropout": 0.1}, "model.attention=flex"),
    ("model", {"source_vocab_size": 23}, "model.tie_embeddings=all needs one vocabulary"),
    ("optimizer", {"betas": (0.9, 1.0)}, "optimizer.betas=[0.9, 1.0] must be from 0 and below"),
    ("loss", {"chunk": 0, "bfloat16": True}, "loss.bfloat16=true"),
    ("loss", {"consistency": "r_drop"}, "loss.consistency=r_drop"),
    ("loss", R_DROP | {"alignment_weight": 0.1}, "loss.alignment_weight=0.1"),
    ("trainer", {"max_time": 3600}, "trainer.max_time=3600 must be DAYS:HOURS:MINUTES:SECONDS"),
    ("trainer", {"max_steps": 0}, "trainer.max_steps=0 must be at least 1"),
    ("data", {"corpora": {}}, "data.corpora={} names none"),
    ("data", {"corpora": {"big": {"test_size": -1}}}, "data.corpora.big.test_size=-1"),
    ("data", {"corpora": {"a": {"tag": "b c"}}}, "data.corpora.a.tag='b c'"),
    ("data", {"document_key": "id"}, "data.document_key needs data.documents"),
    ("data", {"streaming": True}, "data.streaming=true"),
    ("data", {"corpora": {"a": {"weight": 1.0}, "b": {}}}, "data.corpora.b.weight is missing"),
    ("denoising", {"permute": True}, "data.denoising.permute"),
    ("augmentation", {"upper": 0.6, "lower": 0.6}, "the probabilities of augmentation"),
    ("tokenizer", {"vocab_size": None}, "tokenizer.vocab_size=null"),
    ("tokenizer", {"algorithm": "char", "sampling": 0.1}, "tokenizer.sampling"),
    ("tokenizer", {"features": ";"}, "tokenizer.features are read with"),
    ("tokenizer", {"algorithm": "char", "features": ""}, "tokenizer.features=''"),
    ("tokenizer", {"algorithm": "words", "decompose": True}, "tokenizer.decompose"),
    ("tokenizer", {"algorithm": "char", "sentinels": 9}, "tokenizer.add and sentinels"),
    ("tokenizer", {"add": ["a b"]}, "tokenizer.add has 'a b'"),
    ("tokenizer", {"algorithm": "sentencepiece"}, "tokenizer=sentencepiece reads"),
    ("tokenizer", {"algorithm": "bytes", "file": "x"}, "tokenizer.file is not read"),
    ("tokenizer", {"algorithm": "huggingface", "file": ["a", "b", "c"]}, "tokenizer.file must be"),
    ("tokenizer", {"algorithm": "bytes", "sentinels": 126}, "tokenizer=bytes has 125"),
]


@pytest.mark.parametrize(("group", "changes", "message"), CONTRADICTIONS)
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
        "tokenizer": TokenizerConfig,
        "trainer": TrainerConfig,
    }
    values = tiny_config().to_dict() if group == "model" else {}
    with pytest.raises(InputError) as caught:
        typed(kinds[group], values | changes, group)
    assert str(caught.value).startswith(message)


def test_a_model_config_comes_back_from_its_plain_values() -> None:
    config = tiny_config(source_vocab_size=9, tie_embeddings="decoder", activation="gelu")
    assert typed(ModelConfig, config.to_dict(), "model") == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["seed=x"], "seed='x' must be a whole number"),
        (["trainer.max_steps=-1"], r"schedule\.total=-1: schedule=linear needs its last"),
        (["model.lora_rank=4"], r"set finetune_from=RUN"),
        (["trainer.compile=layers", "model.decoder_pattern=sliding"], "cannot compile"),
        (["trainer=fsdp", "callbacks.ema_decay=0.9"], r"set callbacks\.ema_decay=0"),
        (["trainer=fsdp", "model.layer_drop=0.1"], r"model\.layer_drop=0"),
        (["decoding=mbr", "decoding.utility=operator:eq"], r"utility=operator:eq is a program"),
    ],
)
def test_the_keys_of_a_run_are_checked(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_settings(compose_config("train", arguments))


def test_a_cosine_ends_with_the_run_that_it_is_for() -> None:
    for total, last in ((None, 7), (-1, 7), (8, 8)):
        assert ScheduleConfig("cosine", total=total).ending_at(7).total == last


def test_a_config_of_a_program_is_checked() -> None:
    with no_checks(), pytest.raises(InputError, match=r"^batch_tokens=0 must be at"):
        EvaluateConfig(checkpoint="RUN", batch_tokens=0)
    with no_checks(), pytest.raises(InputError, match="splits=5 must be a list or null"):
        TextConfig(output=Path("x"), splits=5)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"),
    [(1, 0.6, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0)],
)
def test_length_penalty(length: int, alpha: float, penalty: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(penalty)
