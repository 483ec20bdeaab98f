"""``doctor``: the faults of a corpus, and which are more frequent than they may be."""

import time

from transformer.commands.corpus import corpus_tokenizer, examination_config, one_corpus
from transformer.quality.examination import Report, examine, to_json
from transformer.quality.examined_text import given_texts
from transformer.settings.corpora import DoctorConfig


def doctor(config: DoctorConfig, *, fit_vocabulary: bool = False) -> Report:
    """Examine a corpus; returns the plain values that the command prints.

    ``report["exceeded"]`` names the faults above their thresholds. With ``fit_vocabulary``, a
    vocabulary that is too large for the text gets the largest possible size. Raises InputError if a
    text cannot be read.
    """
    data = one_corpus(config.data)
    thresholds = vars(config.thresholds) | {"leak_target": _leak_target(config)}
    allowed = {name: limit for name, limit in thresholds.items() if limit is not None}
    settings = examination_config(config, allowed, config.examples)
    splits = given_texts(data)
    tokenizer = corpus_tokenizer(config, splits, fit_vocabulary=fit_vocabulary)
    start = time.perf_counter()
    examination = examine(splits, settings, tokenizer)
    speed = round(sum(examination.pairs.values()) / (time.perf_counter() - start))
    return {**to_json(examination, splits, allowed), "pairs_per_second": speed}


def _leak_target(config: DoctorConfig) -> float | None:
    limit = config.thresholds.leak_target
    if limit != "auto":
        return limit
    # Without a ratio, the text is no translation: its targets, as actions of commands, may recur.
    return 1.0 if config.data.max_ratio is None else 0.25
