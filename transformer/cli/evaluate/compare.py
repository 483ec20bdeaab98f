"""``compare``: is a system better than another, how sure is that, and where do they differ?"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import resolve_fields, split_paths
from transformer.cli.evaluate import scored_text
from transformer.cli.load import load_translator, resolve_file
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import Referenced
from transformer.decoding.batched_search import warn_about_length_limit
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.comparison.compare import (
    ComparedText,
    ComparisonConfig,
    System,
    compare,
)
from transformer.evaluation.comparison.significance import Resampling
from transformer.model.checkpoint.checkpoint import read_payload, require_translation
from transformer.model.checkpoint.locate import is_exported
from transformer.report.comparison import format_comparison, print_comparison, save_comparison
from transformer.report.scores import print_json

Run = dict[str, Any]


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Compare systems."""
    # Errors of the call come before minutes of translation.
    resolve_comparison(config, None)
    output = scored_text.writable_output(config)
    comparison = compare(*find_compared(config, split_paths(arguments)[1]))
    print_comparison(comparison)
    print_json(format_comparison(comparison))
    if output is not None:
        save_comparison(output, comparison)


def find_compared(
    config: DictConfig, arguments: Sequence[str]
) -> tuple[ComparedText, list[System], ComparisonConfig]:
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
    comparison = None
    # A run that cannot translate is refused before the others translate.
    about = {path: _about(path) for path in runs}
    for path in runs:
        # One after the other: the models need not fit the memory together.
        single = OmegaConf.create({**config, "checkpoint": str(path)})
        translator, run = load_translator(single, arguments)
        # Metrics are those of the first run.
        comparison = comparison or resolve_comparison(config, run)
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
    comparison = comparison or resolve_comparison(config, None)
    return compared, [systems[path] for path in paths], comparison


def resolve_comparison(config: DictConfig, run: Run | None) -> ComparisonConfig:
    """What to compare, by the metrics of a run."""
    return ComparisonConfig(
        **resolve_fields(config, ComparisonConfig),
        resampling=Resampling(**resolve_fields(config, Resampling)),
        scoring=scored_text.resolve_metrics(config, run),
    )


def _about(path: Path) -> dict[str, Any]:
    file = resolve_file(path)
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
    warn_about_length_limit([translator.length_limit.pop_counts()])
    hypotheses = [translation.text for translation in found]
    return System(str(path), hypotheses, {**about, "search": asdict(translator.search)})


def _check_counts(hypotheses: Mapping[Path, Sequence[str]], pairs: Sequence[Referenced]) -> None:
    for path, lines in hypotheses.items():
        if len(lines) != len(pairs):
            raise InputError(
                f"{path} has {len(lines)} lines for {len(pairs)} sentences; give one hypothesis "
                "for each, in their order"
            )
