"""``doctor``, ``clean`` and ``text``: tables go to stderr, JSON to a file or a pipe on stdout.

Each command imports its library function when it runs: no other command takes time for it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transformer.cli.arguments import names_vocabulary_size
from transformer.common.errors import InputError
from transformer.settings.corpora import CleanConfig, DoctorConfig, TextConfig

if TYPE_CHECKING:
    from transformer.quality.cleaning import CleanedSplit


def run_doctor(config: DoctorConfig, arguments: Sequence[str]) -> None:
    """Examine a corpus."""
    from transformer.commands.doctor import doctor
    from transformer.reports.scores import print_json

    report = doctor(config, fit_vocabulary=not names_vocabulary_size(arguments))
    _show_findings(report)
    print_json(json.dumps(report, indent=1, ensure_ascii=False))
    exceeded = report["exceeded"]
    if exceeded:
        raise InputError(
            f"too many faults ({'; '.join(exceeded)}): mend the text, leave them out with "
            "transformer clean (one target a line), or allow more with thresholds.NAME=SHARE"
        )
    print("no fault is more frequent than it may be", file=sys.stderr)


def _show_findings(report: Mapping[str, Any]) -> None:
    from transformer.quality import examination
    from transformer.reports.scores import build_table, table_console

    console = table_console()
    unit = report["splits"]["train"]["lengths"]["unit"]
    lengths = examination.length_rows(report)
    console.print(
        build_table(f"lengths ({unit})", examination.LENGTHS, lengths, right=(1, 3, 4, 5, 6, 7))
    )
    findings = list(examination.finding_rows(report))
    if findings:
        console.print(build_table("findings", examination.FINDINGS, findings, right=(2, 3, 4)))
    for line in examination.example_lines(report):
        print(line, file=sys.stderr)
    _show_skipped(report["skipped"])
    pairs = sum(split["pairs"] for split in report["splits"].values())
    print(f"{pairs:,} pairs, {report['pairs_per_second']:,} a second", file=sys.stderr)


def _show_skipped(skipped: Mapping[str, str]) -> None:
    for check, needs in skipped.items():
        print(f"{check} was not looked for: it {needs}", file=sys.stderr)


def run_clean(config: CleanConfig, arguments: Sequence[str]) -> None:
    """Write the good pairs, and list the others."""
    from transformer.cli.progress import counted
    from transformer.cli.threads import set_threads
    from transformer.commands.clean import clean
    from transformer.reports.scores import print_json

    with counted("scored by models= (faulty pairs aside)") as show:
        cleaned, skipped = clean(
            config,
            fit_vocabulary=not names_vocabulary_size(arguments),
            show=show,
            loaded=set_threads,
        )
    for name, split in cleaned.items():
        _show_cleaned(name, split, config.repair)
    _show_skipped(skipped)
    report = {
        "output": str(config.output),
        "splits": {
            name: {
                **vars(split),
                "faults": dict(split.faults.most_common()),
                "repairs": dict(split.repairs.most_common()),
                "files": [str(config.output / file) for file in split.files],
            }
            for name, split in cleaned.items()
        },
        "skipped": dict(skipped),
    }
    print(f"written to {config.output}", file=sys.stderr)
    print_json(json.dumps(report, indent=1, ensure_ascii=False))


def _show_cleaned(name: str, split: "CleanedSplit", repair: bool) -> None:
    total = split.kept + split.rejected
    print(f"{name}: {split.kept:,} of {total:,} pairs kept", file=sys.stderr)
    if split.rejected > split.kept:
        print(f"warning: {name}: {split.summary()}", file=sys.stderr)
    for fault, count in split.faults.most_common():
        print(f"  {fault:20} {count:>12,}", file=sys.stderr)
    if split.repaired:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in split.repairs.most_common())
        mended = "were repaired" if repair else "can be repaired (repair=true)"
        print(f"  {split.repaired:,} of the kept pairs {mended}: {kinds}", file=sys.stderr)


def run_text(config: TextConfig, _: Sequence[str]) -> None:
    """Write the splits of a corpus as plain files, and show how many pairs each has."""
    from transformer.commands.text import text

    for name, split in text(config).items():
        print(f"{name}: {split.pairs:,} pairs", file=sys.stderr)
