"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import is_zipfile

from transformer.checkpoint.checkpoint import (
    Loaded,
    portable_part,
    read_payload,
    require_translation,
)
from transformer.checkpoint.run_directory import checkpoint_file, is_exported
from transformer.commands.scored_text import (
    changed_metrics,
    own_text,
    pairs_to_score,
    require_trusted,
    require_writable_output,
    scored_split,
    text_name,
)
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import run_split
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import Referenced
from transformer.decoding.document_translator import in_documents
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.translator import Translator, length_counts
from transformer.evaluation.comparison import (
    ComparedText,
    Comparison,
    System,
    check_metrics,
    compare_systems,
)
from transformer.interchange.translators import fetched, load_translator
from transformer.reports.comparison import save_comparison
from transformer.settings.evaluation import CompareConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig

log = logging.getLogger(__name__)

Show = Callable[[str | Comparison], object]


def compare(
    config: CompareConfig,
    show: Show = lambda event: None,
    *,
    loaded: Loaded = lambda checkpoints: None,
) -> Comparison:
    """Compare systems; with ``output`` write ``comparison.json``.

    Args:
        config: The settings; InputError if they contradict each other or a system.
        show: Is called with lines of progress, and with the result before it is written.
        loaded: As for ``load_translator``.
    """
    # Errors of the call come before minutes of translation.
    training = _own_training_text(config)
    require_writable_output(config)
    compared = _find_compared(config, show, loaded)
    if config.training is True:
        training = _training_text(config, compared)
    comparison = compare_systems(
        compared.text, compared.systems, config, compared.metrics, training
    )
    show(comparison)
    if config.output is not None:
        save_comparison(config.output, comparison)
    return comparison


class _Compared(NamedTuple):
    """A text and its systems in the order of the call; with the first run, if there is one."""

    text: ComparedText
    systems: list[System]
    metrics: MetricsConfig
    first: tuple[Path, RunConfig] | None


def _find_compared(config: CompareConfig, show: Show, loaded: Loaded) -> _Compared:
    """Read the text, which all runs must share, and translate it where there are no hypotheses."""
    paths = [*map(fetched, config.runs)]
    runs = list(dict.fromkeys(path for path in paths if path.is_dir() or is_zipfile(path)))
    if config.source is None and not runs:
        raise InputError(
            "files of hypotheses alone do not say what their sources are; give source=FILE and "
            "reference=FILE"
        )
    name = text_name(config)
    text: list[Referenced] | None = None
    hypotheses = {path: list(read_lines(path)) for path in paths if path not in runs}
    if not runs:
        text = _own_pairs(config)
        assert text is not None
        _check_counts(hypotheses, text)
    systems = {path: System(str(path), lines) for path, lines in hypotheses.items()}
    first: tuple[Path, RunConfig] | None = None
    text_of_user: list[Referenced] | None = None
    metrics = changed_metrics(config, None, "compare")
    # A run that cannot translate, or whose text is not trusted, is refused before others translate.
    about = {path: about_run(path) for path in runs}
    if config.source is None:
        for path in runs:
            _require_trusted_text(config, path)
    for path in runs:
        # One after the other: the models need not fit the memory together.
        translator, run = load_translator(config.translator(path), loaded=loaded)
        if first is None:
            first = (path, run)
            metrics = changed_metrics(config, run, path)
            check_metrics(config, metrics)
            text_of_user = _own_pairs(config, run)
        # Equal texts may have other tags, which are those of the run.
        pairs = text_of_user or pairs_to_score(scored_split(config, run, path))
        if text is None:
            _check_counts(hypotheses, pairs)
            text = pairs
        elif pairs != text:
            raise InputError(
                f"split={config.split} is not the same text for {path} and {runs[0]}; give a text "
                "for all with source=FILE reference=FILE"
            )
        show(f"{path}: decoding {len(pairs)} sentences of {name}")
        systems[path] = _run_system(path, about[path], translator, pairs)
    assert text is not None  # of the user or of a run
    sources, references = zip(*text, strict=True)
    features = first is not None and first[1].data.features is not None
    compared = ComparedText(name, sources, references, features)
    return _Compared(compared, [systems[path] for path in paths], metrics, first)


def _own_pairs(config: CompareConfig, run: RunConfig | None = None) -> list[Referenced] | None:
    """The user's text, if it is given; one file of both sides is read as the run's training."""
    files = own_text(config, run)
    return None if files is None else pairs_to_score(files)


def _require_trusted_text(config: CompareConfig, path: Path) -> None:
    if not is_exported(path):
        payload = read_payload(checkpoint_file(path), tensors=False)
        require_trusted(config, portable_part(payload).config, path)


def _own_training_text(config: CompareConfig) -> Iterator[str] | None:
    """The user's file, if one is named; an error of its beginning comes now."""
    if isinstance(config.training, bool):
        return None
    lines = read_lines(config.training)
    # A pipe can be read only once.
    return chain(list(islice(lines, 1)), lines)


def _training_text(config: CompareConfig, compared: _Compared) -> Iterator[str] | None:
    """The target side of the training text of the first run; None with a note if it is missing."""
    reason = "there is no run among the systems"
    if compared.first is not None:
        path, run = compared.first
        try:
            require_trusted(config, run, path)
            text = run_split(run.data, "train", training=True)
            return (target for _, target in text)
        except InputError as error:
            reason = str(error)
    log.warning(
        "note: no table of words by frequency without the training text: %s; training=FILE gives "
        "one",
        reason,
    )
    return None


def about_run(path: Path) -> dict[str, Any]:
    """The checkpoint of a run, as plain values; InputError if it cannot translate."""
    file = checkpoint_file(path)
    about = {"checkpoint": str(file)}
    if not is_exported(path):  # only translators are exported
        payload = read_payload(file, tensors=False)
        require_translation(payload, file)
        if "current_model_state" in payload:
            about["weights"] = "ema"
    return about


def _run_system(
    path: Path, about: Mapping[str, Any], translator: Translator, pairs: Sequence[Referenced]
) -> System:
    translations = in_documents(translator).translate([source for source, _ in pairs])
    warn_about_length_limit([length_counts(translations)])
    hypotheses = [translation.text for translation in translations]
    return System(str(path), hypotheses, {**about, "search": asdict(translator.search)})


def _check_counts(hypotheses: Mapping[Path, Sequence[str]], pairs: Sequence[Referenced]) -> None:
    for path, lines in hypotheses.items():
        if len(lines) != len(pairs):
            raise InputError(
                f"{path} has {len(lines)} lines for {len(pairs)} sentences; give one hypothesis "
                "for each, in their order"
            )
