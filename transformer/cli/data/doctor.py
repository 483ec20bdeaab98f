"""``doctor``: checks a corpus before any training.

Tables and examples go to stderr; JSON to stdout if that is a file or a pipe.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import compose_config
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.data.corpora.resolve import Split
    from transformer.data.quality.scan import Examination


def main(arguments: Sequence[str]) -> int:
    """Examine; returns the exit code."""
    return run_to_exit_code(lambda: _doctor(compose_config("doctor", arguments), arguments))


def _doctor(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.data import corpus_options
    from transformer.common.schema import typed_value
    from transformer.data.quality.config import Thresholds
    from transformer.data.quality.report import to_json, too_many
    from transformer.data.quality.scan import examine
    from transformer.data.quality.texts import given_texts

    values: Any = OmegaConf.to_container(config)
    thresholds: Thresholds = typed_value(values["thresholds"], Thresholds, "thresholds")
    examples = typed_value(config.examples, int, "examples")
    allowed = thresholds.enabled()
    data = corpus_options.data_config(config)
    settings = corpus_options.examination_config(config, data, allowed, examples)
    splits = given_texts(data)
    tokenizer = corpus_options.build_tokenizer(config, splits, data.cache, arguments)
    start = time.perf_counter()
    examination = examine(splits, settings, tokenizer)
    speed = round(sum(examination.pairs.values()) / (time.perf_counter() - start))
    _show(examination, splits, allowed, speed)
    if sys.stdout is not None and not sys.stdout.isatty():
        report = to_json(examination, splits, allowed) | {"pairs_per_second": speed}
        print(json.dumps(report, indent=1, ensure_ascii=False))
    if exceeded := too_many(examination, allowed):
        raise InputError(
            f"too many faults ({'; '.join(exceeded)}): mend the text, leave them out with "
            "transformer clean filters.NAME=true, or allow more with thresholds.NAME=SHARE"
        )
    print("no fault is more frequent than it may be", file=sys.stderr)


def _show(
    examination: "Examination",
    splits: "Mapping[str, Split]",
    allowed: Mapping[str, float],
    speed: int,
) -> None:
    """Print tables and examples to stderr."""
    from transformer.data.quality import report
    from transformer.report.scores import build_table, table_console

    console, title = table_console(), f"lengths ({examination.unit})"
    rows = report.length_rows(examination)
    console.print(build_table(title, report.LENGTHS, rows, right=(1, 3, 4, 5, 6, 7)))
    if found := list(report.finding_rows(examination, allowed)):
        console.print(build_table("findings", report.FINDINGS, found, right=(2, 3, 4)))
    for line in report.example_lines(examination, splits):
        print(line, file=sys.stderr)
    for check, needs in examination.skipped.items():
        print(f"{check} was not looked for: it {needs}", file=sys.stderr)
    print(f"{sum(examination.pairs.values()):,} pairs, {speed:,} a second", file=sys.stderr)
