"""``clean``: what was kept, rejected and repaired goes to stderr; JSON to stdout."""

import json
import sys
from collections.abc import Mapping, Sequence

from transformer.cli.config.arguments import names_vocabulary_size
from transformer.cli.progress import counted
from transformer.cli.threads import set_threads
from transformer.commands.clean import clean
from transformer.quality.cleaning import CleanedSplit
from transformer.reports.scores import print_json
from transformer.settings.corpora import CleanConfig


def run(config: CleanConfig, arguments: Sequence[str]) -> None:
    """Write the good pairs, and list the others."""
    with counted("scored by models= (faulty pairs aside)") as show:
        cleaned, skipped = clean(
            config,
            fit_vocabulary=not names_vocabulary_size(arguments),
            show=show,
            loaded=set_threads,
        )
    _show(cleaned, skipped, config.repair)
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


def _show(cleaned: Mapping[str, CleanedSplit], skipped: Mapping[str, str], repair: bool) -> None:
    for name, split in cleaned.items():
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
    for check, needs in skipped.items():
        print(f"{check} was not looked for: it {needs}", file=sys.stderr)
