"""``clean``: the good pairs of a corpus to a new folder, mended; what is wrong with the others."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError

if TYPE_CHECKING:
    from transformer.data.quality.cleaning.cleaning import Cleaned


def main(arguments: Sequence[str]) -> int:
    """Clean; returns the exit code."""
    return run_to_exit_code(lambda: _clean(compose_config("clean", arguments), arguments))


def _clean(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.data.corpus_options import build_tokenizer, data_config
    from transformer.common.schema import typed_value
    from transformer.data.quality.cleaning.cleaning import clean, given_texts
    from transformer.data.quality.config import ExaminationConfig
    from transformer.data.quality.factory import Checks
    from transformer.data.quality.pair import check_not_empty

    values: Any = OmegaConf.to_container(config)
    filters = typed_value(values["filters"], Mapping[str, bool], "filters")
    wanted = {name for name, on in filters.items() if on}
    names = typed_value(values["splits"], Sequence[str], "splits")
    data = data_config(config)
    settings = ExaminationConfig(
        checks=frozenset(wanted),
        examples=0,
        ratio=typed_value(config.ratio, float, "ratio"),
        max_length=data.max_length,
        languages=(data.source, data.target),
    )
    texts = given_texts(data)
    check_not_empty(texts)
    tokenizer = build_tokenizer(config, texts, data.cache, arguments)
    if tokenizer is None and "unknown_characters" in wanted:
        raise InputError("filters.unknown_characters=true needs checkpoint=RUN or tokenizer=bpe")
    checks = Checks(texts, settings, tokenizer)
    folder = resolve_path(config, "output")
    repair = typed_value(config.repair, bool, "repair")
    done = clean(texts, names, checks, frozenset(wanted), folder, repair=repair)
    _show(done, checks.skipped, repair)
    print(json.dumps(_report(folder, done, checks.skipped), indent=1, ensure_ascii=False))


def _show(done: "Mapping[str, Cleaned]", skipped: Mapping[str, str], repair: bool) -> None:
    """A summary on stderr."""
    for name, cleaned in done.items():
        total = cleaned.kept + cleaned.rejected
        print(f"{name}: {cleaned.kept:,} of {total:,} pairs kept", file=sys.stderr)
        if cleaned.rejected > cleaned.kept:
            print(f"warning: {name}: {cleaned.share_kept()}", file=sys.stderr)
        for reason, count in cleaned.reasons.most_common():
            print(f"  {reason:20} {count:>12,}", file=sys.stderr)
        if cleaned.repaired:
            of = ", ".join(f"{what} {count:,}" for what, count in cleaned.repairs.most_common())
            mended = "were repaired" if repair else "can be repaired (repair=true)"
            print(f"  {cleaned.repaired:,} of the kept pairs {mended}: {of}", file=sys.stderr)
    for check, needs in skipped.items():
        print(f"{check} was not looked for: it {needs}", file=sys.stderr)


def _report(
    folder: Path, done: "Mapping[str, Cleaned]", skipped: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "output": str(folder),
        "splits": {
            name: {
                "kept": cleaned.kept,
                "rejected": cleaned.rejected,
                "faults": dict(cleaned.reasons.most_common()),
                "repaired": cleaned.repaired,
                "repairs": dict(cleaned.repairs.most_common()),
                "files": [str(folder / file) for file in cleaned.files],
            }
            for name, cleaned in done.items()
        },
        "skipped": dict(skipped),
    }
