"""``doctor``: checks a corpus; tables go to stderr, JSON to a file or a pipe on stdout."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_value
from transformer.cli.data import corpus_options
from transformer.common.errors import InputError
from transformer.quality import examination as rows
from transformer.quality.check import allowed_fractions
from transformer.quality.examination import examine, to_json
from transformer.quality.examined_text import given_texts
from transformer.report.scores import build_table, print_json, table_console


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Examine a corpus."""
    allowed = allowed_fractions(resolve_value(config, "thresholds", Mapping[str, float | None]))
    examples = resolve_value(config, "examples", int)
    data = corpus_options.data_config(config)
    named = any(one.startswith("thresholds.leak_target=") for one in arguments)
    if data.max_ratio is None and "leak_target" in allowed and not named:
        # Such a text is no translation: its targets, as actions of commands, may recur.
        allowed["leak_target"] = 1.0
    settings = corpus_options.examination_config(config, data, allowed, examples)
    splits = given_texts(data)
    tokenizer = corpus_options.build_tokenizer(config, splits, data.cache, arguments)
    start = time.perf_counter()
    examination = examine(splits, settings, tokenizer)
    speed = round(sum(examination.pairs.values()) / (time.perf_counter() - start))
    report = to_json(examination, splits, allowed)
    _show(report, examination.unit, speed)
    print_json(json.dumps({**report, "pairs_per_second": speed}, indent=1, ensure_ascii=False))
    if exceeded := report["exceeded"]:
        raise InputError(
            f"too many faults ({'; '.join(exceeded)}): mend the text, leave them out with "
            "transformer clean (one target a line), or allow more with thresholds.NAME=SHARE"
        )
    print("no fault is more frequent than it may be", file=sys.stderr)


def _show(report: Mapping[str, Any], unit: str, speed: int) -> None:
    console = table_console()
    lengths = rows.length_rows(report)
    console.print(build_table(f"lengths ({unit})", rows.LENGTHS, lengths, right=(1, 3, 4, 5, 6, 7)))
    if found := list(rows.finding_rows(report)):
        console.print(build_table("findings", rows.FINDINGS, found, right=(2, 3, 4)))
    for line in rows.example_lines(report):
        print(line, file=sys.stderr)
    for check, needs in report["skipped"].items():
        print(f"{check} was not looked for: it {needs}", file=sys.stderr)
    pairs = sum(split["pairs"] for split in report["splits"].values())
    print(f"{pairs:,} pairs, {speed:,} a second", file=sys.stderr)
