"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import is_zipfile

from omegaconf import DictConfig, OmegaConf

from transformer.checkpoint.checkpoint import read_payload, require_translation
from transformer.checkpoint.locate import checkpoint_file, is_exported
from transformer.cli import translator as described
from transformer.cli.config.compose import resolve_fields, resolve_value, split_paths
from transformer.cli.evaluate import scored_text
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.corpora.evaluation_text import run_split
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import Referenced
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.result import length_counts
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.comparison.compare import (
    ComparedText,
    ComparisonConfig,
    System,
    compare,
)
from transformer.evaluation.comparison.significance import Resampling
from transformer.report.comparison import format_comparison, print_comparison, save_comparison
from transformer.report.scores import print_json
from transformer.settings.run import RunConfig

Run = dict[str, Any]


class Compared(NamedTuple):
    """A text and its systems in the order of the call; with the config of the first run, if any."""

    text: ComparedText
    systems: list[System]
    run: RunConfig | None
    comparison: ComparisonConfig


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Compare systems."""
    # Errors of the call come before minutes of translation.
    resolve_comparison(config, None)
    training = own_training_text(config)
    output = scored_text.writable_output(config)
    found = find_compared(config, split_paths(arguments)[1])
    if config.training is True:
        training = training_text(config, found.run)
    comparison = compare(found.text, found.systems, found.comparison, training)
    print_comparison(comparison)
    print_json(format_comparison(comparison))
    if output is not None:
        save_comparison(output, comparison)


def find_compared(config: DictConfig, arguments: Sequence[str]) -> Compared:
    """Read the text, which all runs must share, and translate it where there are no hypotheses."""
    paths = list(map(given_path, config.runs))
    runs = list(dict.fromkeys(path for path in paths if path.is_dir() or is_zipfile(path)))
    if config.source is None and not runs:
        raise InputError(
            "files of hypotheses alone do not say what their sources are; give source=FILE and "
            "reference=FILE"
        )
    files, name = scored_text.own_text(config), scored_text.text_name(config)
    text = own = None if files is None else scored_text.pairs_to_score(files)
    hypotheses = {path: list(read_lines(path)) for path in paths if path not in runs}
    if text is not None:
        _check_counts(hypotheses, text)
    systems = {path: System(str(path), lines) for path, lines in hypotheses.items()}
    first, comparison = None, resolve_comparison(config, None)
    # A run that cannot translate is refused before the others translate.
    about = {path: _about(path) for path in runs}
    for path in runs:
        # One after the other: the models need not fit the memory together.
        single = OmegaConf.create({**config, "checkpoint": str(path)})
        translator, run = described.load(single, arguments)
        if first is None:
            first, comparison = run, resolve_comparison(config, run)
        # Equal texts may have other tags, which are those of the run.
        pairs = own or scored_text.pairs_to_score(scored_text.scored_split(single, run))
        if text is None:
            _check_counts(hypotheses, pairs)
            text = pairs
        elif pairs != text:
            raise InputError(
                f"split={config.split} is not the same text for {path} and {runs[0]}; give a text "
                "for all with source=FILE reference=FILE"
            )
        systems[path] = _run_system(path, about[path], translator, pairs, name)
    assert text is not None  # of the user or of a run
    sources, references = zip(*text, strict=True)
    compared = ComparedText(name, sources, references)
    return Compared(compared, [systems[path] for path in paths], first, comparison)


def resolve_comparison(config: DictConfig, run: RunConfig | None) -> ComparisonConfig:
    """What to compare, by the metrics of a run."""
    return ComparisonConfig(
        **resolve_fields(config, ComparisonConfig),
        resampling=Resampling(**resolve_fields(config, Resampling)),
        scoring=scored_text.resolve_metrics(config, run),
    )


def own_training_text(config: DictConfig) -> Iterator[str] | None:
    """The user's file, if one is named; an error of its beginning comes now."""
    name = resolve_value(config, "training", bool | str)
    if isinstance(name, bool):
        return None
    lines = read_lines(given_path(name))
    # A pipe can be read only once.
    return chain(list(islice(lines, 1)), lines)


def training_text(config: DictConfig, run: RunConfig | None) -> Iterator[str] | None:
    """The target side of the training text of the first run; None with a note if it is missing."""
    reason = "there is no run among the systems"
    if run is not None:
        try:
            scored_text.require_trusted(config, run)
            text = run_split(run.data, "train", training=True)
            return (target for _, target in text)
        except InputError as error:
            reason = str(error)
    note = f"no table of words by frequency without the training text: {reason}"
    print(f"note: {note}; training=FILE gives one", file=sys.stderr)
    return None


def _about(path: Path) -> dict[str, Any]:
    file = checkpoint_file(path)
    about = {"checkpoint": str(file)}
    if not is_exported(path):  # only translators are exported
        payload = read_payload(file)
        require_translation(payload, file)
        if "current_model_state" in payload:
            about["weights"] = "ema"
    return about


def _run_system(
    path: Path, about: Run, translator: Translator, pairs: Sequence[Referenced], name: str
) -> System:
    print(f"{path}: decoding {len(pairs)} sentences of {name}", file=sys.stderr, flush=True)
    found = in_documents(translator).translate([source for source, _ in pairs])
    warn_about_length_limit([length_counts(found)])
    hypotheses = [translation.text for translation in found]
    return System(str(path), hypotheses, {**about, "search": asdict(translator.search)})


def _check_counts(hypotheses: Mapping[Path, Sequence[str]], pairs: Sequence[Referenced]) -> None:
    for path, lines in hypotheses.items():
        if len(lines) != len(pairs):
            raise InputError(
                f"{path} has {len(lines)} lines for {len(pairs)} sentences; give one hypothesis "
                "for each, in their order"
            )
