"""``clean``: writes the good pairs of a corpus, repaired, to a new folder, and lists the others."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.data import corpus_options
from transformer.cli.progress import counted
from transformer.cli.translate.score import Scorer, load_scorer
from transformer.common.errors import InputError, errors_name
from transformer.data.corpora.split import numbered
from transformer.data.text.parallel import Pair
from transformer.quality.cleaning import CleanedSplit, choose_pairs, clean
from transformer.quality.corpus_checks import Checks
from transformer.quality.examined_text import given_texts
from transformer.report.scores import print_json
from transformer.settings.data import DataConfig

CrossEntropies = Callable[[Sequence[Pair]], list[float]]

_REPORTED = 1024
"""Pairs between two reports; enough to be sorted into full batches."""


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Write the good pairs, and list the others."""
    filters = resolve_value(config, "filters", Mapping[str, bool])
    repair = resolve_value(config, "repair", bool)
    repairs = resolve_value(config, "repairs", Mapping[str, bool])
    folder = resolve_path(config, "output")
    data = corpus_options.data_config(config)
    models, keep = _load_models(config, data, any(one.startswith("keep=") for one in arguments))
    enabled = {name for name, is_on in filters.items() if is_on}
    settings = corpus_options.examination_config(config, data, enabled, examples=0)
    texts = given_texts(data)
    names = corpus_options.split_names(config, texts)
    tokenizer = corpus_options.build_tokenizer(config, texts, data.cache, arguments)
    if tokenizer is None and "unknown_characters" in enabled:
        raise InputError("filters.unknown_characters=true needs checkpoint=RUN or tokenizer=bpe")
    checks = Checks(texts, settings, tokenizer)
    with ExitStack() as stack:
        drop = None
        if models:
            total = sum(1 for name in {*names} for _ in numbered(texts[name]))
            what = "scored by models= (faulty pairs aside)"
            forward, reverse = _reporting(models, stack.enter_context(counted(what, total)))
            drop = partial(choose_pairs, forward, reverse, keep)
        chosen = [name for name, is_on in repairs.items() if is_on]
        cleaned = clean(checks, names, folder, drop, repair=repair, repairs=chosen)
    _show(cleaned, checks.skipped, repair)
    report = {
        "output": str(folder),
        "splits": {
            name: {
                **vars(split),
                "faults": dict(split.faults.most_common()),
                "repairs": dict(split.repairs.most_common()),
                "files": [str(folder / file) for file in split.files],
            }
            for name, split in cleaned.items()
        },
        "skipped": dict(checks.skipped),
    }
    print(f"written to {folder}", file=sys.stderr)
    print_json(json.dumps(report, indent=1, ensure_ascii=False))


def _load_models(
    config: DictConfig, data: DataConfig, needed: bool
) -> tuple[list[CrossEntropies], float]:
    """The models of ``models=``, and ``keep=``; InputError if a model has another direction."""
    names = resolve_value(config, "models", Sequence[str] | None) or []
    keep = resolve_value(config, "keep", float)
    if not names and not needed:
        return [], keep
    if len(names) != 2 or not 0 < keep < 1:
        given = f"models=[{','.join(names)}] keep={keep}"
        raise InputError(f"{given}: give models=[RUN,REVERSE], and a keep above 0 and below 1")
    sides, models = (data.source, data.target), list[CrossEntropies]()
    for name in names:
        score, run = load_scorer(config, name)
        source, target = run.data.source, run.data.target
        if (source, target) != sides or run.data.target_tag:
            wanted = "{} to {} alone is wanted; give models=[RUN,REVERSE]".format(*sides)
            raise InputError(f"{name} translates {source} to {target}, and {wanted}")
        models.append(partial(_cross_entropies, name, score))
        sides = sides[1], sides[0]
    return models, keep


def _cross_entropies(name: str, score: Scorer, pairs: Sequence[Pair]) -> list[float]:
    with errors_name(name):
        return [-one.log_probability / len(one.tokens) for one in score(pairs, first=None)]


def _reporting(
    models: Sequence[CrossEntropies], report: Callable[[int, str], None]
) -> Iterator[CrossEntropies]:
    """The models of one direction each, which report how many pairs both have scored."""
    scores = 0

    def score(model: CrossEntropies, pairs: Sequence[Pair]) -> list[float]:
        nonlocal scores
        found = list[float]()
        for start in range(0, len(pairs), _REPORTED):
            found += model(pairs[start : start + _REPORTED])
            scores += len(pairs[start : start + _REPORTED])
            report(scores // len(models), "")
        return found

    return (partial(score, model) for model in models)


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
