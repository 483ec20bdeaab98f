"""What a verb scores: the kind of model, the text and the metrics."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from transformer.checkpoint.checkpoint import checkpoint_task, read_payload
from transformer.checkpoint.locate import find_checkpoint, is_exported
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.common.errors import InputError, MissingFile
from transformer.common.files import given_path
from transformer.common.schema import typed
from transformer.data.corpora.evaluation_text import read_texts, run_split
from transformer.data.corpora.mixture import AnySplit
from transformer.data.corpora.split import Split
from transformer.data.corpora.trust import require_trust
from transformer.data.text.parallel import Corpus, Referenced, file_format
from transformer.report.scores import require_writable
from transformer.settings.data import DataConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig


def checkpoint_kind(config: DictConfig) -> tuple[str, bool]:
    """The task of a checkpoint, and whether it is text to text, as ensembles and exports are."""
    path = resolve_path(config, "checkpoint")
    if isinstance(config.checkpoint, ListConfig) or is_exported(path):
        return "translation", True
    task = checkpoint_task(read_payload(find_checkpoint(path)))
    if task == "translation":
        return task, True
    from transformer.tasks.registry import is_translation

    return task, is_translation(task)


def own_text(config: DictConfig, run: RunConfig | None = None) -> Split | None:
    """The user's files, if they are given; one of both sides is read as the training of the run."""
    source = None if config.source is None else resolve_path(config, "source")
    if config.reference is None and source is not None and file_format(source) != "plain":
        data = DataConfig(source="source", target="target") if run is None else run.data
        corpus = Corpus.of(source, data.source, data.target)
        corpus = replace(corpus, features=data.features is not None)
        return Split(corpus, repeated_sources=data.repeated_sources)
    if (config.source is None) != (config.reference is None):
        raise InputError(
            "source=FILE and reference=FILE go together; give both or neither, or one TSV or JSONL "
            "file of both as source="
        )
    if source is None:
        return None
    given = config.reference if isinstance(config.reference, ListConfig) else [config.reference]
    files = [source, *(given_path(str(reference)) for reference in given)]
    return Split(Corpus.of(files, "source", "reference"))


def scored_split(config: DictConfig, run: RunConfig) -> AnySplit:
    """The split of the run's corpus that is named; the training text cannot be."""
    require_trusted(config, run)
    try:
        return run_split(run.data, config.split)
    except MissingFile as error:
        raise MissingFile(f"{error}, or give source=FILE and reference=FILE") from error


def require_trusted(config: DictConfig, run: RunConfig) -> None:
    """Refuse text outside of the working folder that a checkpoint names, without ``trust=true``."""
    trusted = resolve_value(config, "trust", bool, False)
    given = {f"metrics.{key}": value for key, value in _given_metrics(config).items()}
    require_trust(run, trusted, config.get("checkpoint", "a run"), given)


def pairs_to_score(split: AnySplit) -> list[Referenced]:
    """All sources of a text with their references; there is one at least."""
    sources, references, _ = read_texts(split)
    return list(zip(sources, references, strict=True))


def writable_output(config: DictConfig) -> Path | None:
    """The folder of ``output=``, if given: made and tried now, before anything takes long."""
    if config.output is None:
        return None
    folder = resolve_path(config, "output")
    require_writable(folder)
    return folder


def text_name(config: DictConfig) -> str:
    """The name of the text in reports."""
    return str(config.split) if config.source is None else resolve_path(config, "source").name


def resolve_metrics(config: DictConfig, run: RunConfig | None) -> MetricsConfig:
    """The run's own, and raw text's without a run; ``tokenize=`` and the like change it."""
    metrics = MetricsConfig() if run is None else run.metrics
    require_trusted(config, RunConfig(metrics=metrics))
    return typed(MetricsConfig, {**asdict(metrics), **_given_metrics(config)}, "metrics")


def _given_metrics(config: DictConfig) -> dict[str, Any]:
    keys = ("tokenize", "lowercase", "custom", "custom_better", "comet")
    return {key: config[key] for key in keys if config.get(key) is not None}
