"""``clean``: the good pairs of a corpus, repaired, in a new folder, and a list of the others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from transformer.checkpoint.checkpoint import Loaded
from transformer.commands.corpus import split_names, text_corpus
from transformer.commands.doctor import corpus_tokenizer, examination_config
from transformer.commands.score import Scorer, load_scorer
from transformer.common.errors import InputError, errors_name
from transformer.data.corpora.split import numbered
from transformer.data.text.parallel import Pair
from transformer.quality import cleaning
from transformer.quality.corpus_checks import Checks
from transformer.quality.examination import given_texts
from transformer.settings.corpora import CleanConfig, Filters, Repairs
from transformer.settings.translator import TranslatorConfig

CrossEntropies = Callable[[Sequence[Pair]], list[float]]
"""Of the targets given the sources, in nats a token."""

KEPT = 0.9
"""The fraction that stays with ``models`` and without ``keep``."""

_REPORTED = 1024
"""Pairs between two reports; enough to be sorted into full batches."""


class Cleaned(NamedTuple):
    """The result by split, and the checks that could not run, with what they need."""

    splits: Mapping[str, cleaning.CleanedSplit]
    skipped: Mapping[str, str]


def clean(
    config: CleanConfig,
    *,
    fit_vocabulary: bool = False,
    show: Callable[[int, int], None] = lambda done, total: None,
    loaded: Loaded = lambda checkpoints: None,
) -> Cleaned:
    """Write the good pairs of a corpus to a new folder, and list the others beside them.

    ``show`` is told how many pairs the ``models`` have scored, and the largest possible number;
    ``loaded`` is told the checkpoints of each. With ``fit_vocabulary``, a vocabulary that is too
    large for the text gets the largest possible size. Raises InputError if the folder is there
    already, or a text cannot be read.
    """
    data = text_corpus(config.data, "clean")
    cleaning.require_new_folder(config.output)
    models = _load_models(config, loaded)
    texts = given_texts(data)
    names = split_names(config.splits, texts)
    tokenizer = corpus_tokenizer(config, texts, fit_vocabulary=fit_vocabulary)
    checks = Checks(texts, examination_config(config, _chosen(config.filters), 0), tokenizer)
    drop = None
    if models:
        total = sum(1 for name in {*names} for _ in numbered(texts[name]))
        forward, reverse = _reporting(models, lambda done: show(done, total))
        drop = partial(cleaning.choose_pairs, forward, reverse, config.keep or KEPT)
    repairs = _chosen(config.repairs)
    splits = cleaning.clean(
        checks, names, config.output, drop, repair=config.repair, repairs=repairs
    )
    return Cleaned(splits, checks.skipped)


def _chosen(choices: Filters | Repairs) -> list[str]:
    return [name for name, is_on in vars(choices).items() if is_on]


def _load_models(config: CleanConfig, loaded: Loaded) -> list[CrossEntropies]:
    """The cross-entropies of the two models; InputError if one has another direction."""
    sides = (config.data.source, config.data.target)
    models: list[CrossEntropies] = []
    for name in config.models or ():
        score, run = load_scorer(TranslatorConfig.of(config, str(name)), loaded)
        source = run.data.source
        target = run.data.target
        if (source, target) != sides or run.data.target_tag:
            wanted = "{} to {} alone is wanted; give models=[RUN,REVERSE]".format(*sides)
            raise InputError(f"{name} translates {source} to {target}, and {wanted}")
        models.append(partial(_cross_entropies, str(name), score))
        sides = sides[1], sides[0]
    return models


def _cross_entropies(name: str, score: Scorer, pairs: Sequence[Pair]) -> list[float]:
    with errors_name(name):
        return [-target.mean_log_probability for target in score(pairs, first=None)]


def _reporting(
    models: Sequence[CrossEntropies], report: Callable[[int], None]
) -> Iterator[CrossEntropies]:
    """The models of one direction each, which report how many pairs both have scored."""
    scores = 0

    def score(model: CrossEntropies, pairs: Sequence[Pair]) -> list[float]:
        nonlocal scores
        cross_entropies: list[float] = []
        for start in range(0, len(pairs), _REPORTED):
            cross_entropies += model(pairs[start : start + _REPORTED])
            scores += len(pairs[start : start + _REPORTED])
            report(scores // len(models))
        return cross_entropies

    return (partial(score, model) for model in models)
