"""``doctor``: checks a corpus; tables go to stderr, JSON to a file or a pipe on stdout."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from transformer.cli.config.arguments import names_vocabulary_size
from transformer.commands.doctor import doctor
from transformer.common.errors import InputError
from transformer.quality import examination as rows
from transformer.reports.scores import build_table, print_json, table_console
from transformer.settings.corpora import DoctorConfig


def run(config: DoctorConfig, arguments: Sequence[str]) -> None:
    """Examine a corpus."""
    report = doctor(config, fit_vocabulary=not names_vocabulary_size(arguments))
    _show(report)
    print_json(json.dumps(report, indent=1, ensure_ascii=False))
    if exceeded := report["exceeded"]:
        raise InputError(
            f"too many faults ({'; '.join(exceeded)}): mend the text, leave them out with "
            "transformer clean (one target a line), or allow more with thresholds.NAME=SHARE"
        )
    print("no fault is more frequent than it may be", file=sys.stderr)


def _show(report: Mapping[str, Any]) -> None:
    console = table_console()
    lengths, unit = rows.length_rows(report), report["splits"]["train"]["lengths"]["unit"]
    console.print(build_table(f"lengths ({unit})", rows.LENGTHS, lengths, right=(1, 3, 4, 5, 6, 7)))
    if found := list(rows.finding_rows(report)):
        console.print(build_table("findings", rows.FINDINGS, found, right=(2, 3, 4)))
    for line in rows.example_lines(report):
        print(line, file=sys.stderr)
    for check, needs in report["skipped"].items():
        print(f"{check} was not looked for: it {needs}", file=sys.stderr)
    pairs = sum(split["pairs"] for split in report["splits"].values())
    print(f"{pairs:,} pairs, {report['pairs_per_second']:,} a second", file=sys.stderr)
