"""What ``evaluate``, ``compare``, ``stress`` and ``tune`` share: text, task and metrics."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.run_directory import find_checkpoint, is_exported
from transformer.checkpoint.trust import named_classes, require_trust
from transformer.common.errors import InputError, MissingFile
from transformer.common.files import require_writable
from transformer.common.own_code import import_code
from transformer.data.corpora.evaluation_text import read_texts, run_split
from transformer.data.corpora.resolve import AnySplit
from transformer.data.corpora.split import Split
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import Corpus, Referenced, file_format
from transformer.settings.data import DataConfig
from transformer.settings.evaluation import ScoredTextKeys, ScoringKeys
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig
from transformer.tasks.registry import is_translation


def other_task(checkpoints: Sequence[Path], *, trusted: bool) -> str | None:
    """The task of a checkpoint that does not translate; None for translators.

    Ensembles and exports translate. If ``trusted``, a task of the user, ``MODULE:CLASS``, is
    imported.
    """
    if len(checkpoints) > 1 or is_exported(checkpoints[0]):
        return None
    file = find_checkpoint(checkpoints[0])
    run = portable_part(read_payload(file, tensors=False)).config
    if trusted:
        import_code(named_classes(run))
    return None if is_translation(run.task) else run.task


def text_to_score(keys: ScoredTextKeys, run: RunConfig, checkpoint: object) -> AnySplit:
    """The user's files, if they are given, else the split of the run's corpus that is named.

    Raises InputError if the untrusted ``checkpoint`` names files elsewhere.
    """
    return own_text(keys, run) or scored_split(keys, run, checkpoint)


def own_text(keys: ScoredTextKeys, run: RunConfig | None = None) -> Split | None:
    """The user's files, if they are given; one of both sides is read as the training of the run."""
    source = keys.source
    reference = keys.reference
    if reference is None and source is not None and file_format(source) != "plain":
        data = DataConfig(source="source", target="target") if run is None else run.data
        document_key = _document_key(source, data)
        corpus = Corpus.of(source, data.source, data.target, document_key, data.max_line)
        corpus = replace(corpus, features=data.features, source_files=data.source_kind != "text")
        return Split(corpus, repeated_sources=data.repeated_sources)
    if (source is None) != (reference is None):
        raise InputError(
            "source=FILE and reference=FILE go together; give both or neither, or one TSV, JSONL "
            "or Parquet file of both as source="
        )
    if source is None or reference is None:
        return None
    references = [reference] if isinstance(reference, str | Path) else reference
    corpus = Corpus.of([source, *references], "source", "reference")
    if run is not None:
        reads_files = run.data.source_kind != "text"
        corpus = replace(corpus, features=run.data.features, source_files=reads_files)
    return Split(corpus)


def _document_key(source: Path, data: DataConfig) -> str | None:
    """That of the run, if the first row has it: the sentences of a file may be of no document."""
    if data.document_key is None or file_format(source) != "jsonl":
        return None
    first = next(read_lines(source), "")
    with suppress(ValueError):  # which reading the file reports
        row = json.loads(first)
        if isinstance(row, dict) and data.document_key in row:
            return data.document_key
    return None


def scored_split(keys: ScoredTextKeys, run: RunConfig, checkpoint: object) -> AnySplit:
    """The split of the run's corpus that is named; the training text cannot be."""
    require_trusted(keys, run, checkpoint)
    try:
        return run_split(run.data, keys.split)
    except MissingFile as error:
        raise MissingFile(f"{error}, or give source=FILE and reference=FILE") from error


def pairs_to_score(split: AnySplit) -> list[Referenced]:
    """All sources of a text with their references; there is one at least."""
    sources, references, _ = read_texts(split)
    return list(zip(sources, references, strict=True))


def require_writable_output(keys: ScoredTextKeys) -> None:
    """Make the folder for results, if one is named, and try to write, before anything takes long;
    an OSError if that fails."""
    if keys.output is not None:
        require_writable(keys.output)


def text_name(keys: ScoredTextKeys) -> str:
    """The name of the text in reports."""
    return keys.split if keys.source is None else keys.source.name


def changed_metrics(keys: ScoringKeys, run: RunConfig | None, checkpoint: object) -> MetricsConfig:
    """The metrics of a run with the changes of a command; without a run, those of raw text.

    Raises InputError for a program that the untrusted ``checkpoint`` names, and for a wrong value.
    """
    metrics = MetricsConfig() if run is None else run.metrics
    require_trusted(keys, RunConfig(metrics=metrics), checkpoint)
    return replace(metrics, **_changes(keys))


def require_trusted(keys: ScoringKeys, run: RunConfig, checkpoint: object) -> None:
    """Raise InputError if the run names code, or text elsewhere, that ``keys`` neither trust nor
    replace; ``checkpoint`` is its name in the message."""
    require_trust(run, keys.trust, checkpoint, {f"metrics.{key}" for key in _changes(keys)})


def _changes(keys: ScoringKeys) -> dict[str, Any]:
    names = ("tokenize", "lowercase", "custom", "custom_better", "comet")
    changes = {name: getattr(keys, name) for name in names}
    return {name: value for name, value in changes.items() if value is not None}
