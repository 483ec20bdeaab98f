"""Minimum Bayes risk: the candidate of a sentence with the highest expected utility.

Sources: Kumar and Byrne 2004, "Minimum Bayes-Risk Decoding for Statistical Machine Translation";
Eikema and Aziz 2020, "Is MAP Decoding All You Need? The Inadequacy of the Mode in Neural Machine
Translation", section 5. The utilities chrF (Popović 2015, "chrF: character n-gram F-score for
automatic MT evaluation") and BLEU (Papineni et al. 2002) are sacreBLEU's sentence scores, by one
matrix product for all pairs.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from transformer.common.errors import InputError
from transformer.common.own_code import own_module
from transformer.decoding.search.search import Hypothesis
from transformer.settings.decoding import SearchConfig

Scores = Float64[Tensor, "hypothesis reference"]
"""Utility of each text (row) with each text as the reference (column); higher is better."""
Utility = Callable[[Sequence[str]], Scores]


def minimum_bayes_risk(
    candidates: Sequence[Hypothesis], texts: Sequence[str], config: SearchConfig
) -> list[Hypothesis]:
    """Return the ``nbest`` candidates of the highest expected utility, their score, best first.

    Candidates with the same text are merged into the first, with their summed weight, so the result
    may have fewer than ``nbest``. Ties keep their order.
    """
    distinct = list(dict.fromkeys(texts))
    index = torch.tensor([distinct.index(text) for text in texts])
    mass = torch.zeros(len(distinct), dtype=torch.float64)
    mass.index_add_(0, index, weights(candidates, config))
    # fsum rounds once: ties stay ties in any order of the sum.
    expected = map(math.fsum, (utility_named(config.utility)(distinct) * mass).tolist())
    scored = [
        replace(candidates[texts.index(text)], score=utility)
        for text, utility in zip(distinct, expected, strict=True)
    ]
    return sorted(scored, key=lambda candidate: -candidate.score)[: config.nbest]


def weights(
    candidates: Sequence[Hypothesis], config: SearchConfig
) -> Float64[Tensor, " candidate"]:
    """The weight of each candidate: equal for samples, else the model's probability."""
    if config.candidates_by == "sampling":
        return torch.full((len(candidates),), 1 / len(candidates), dtype=torch.float64)
    totals = [candidate.log_probability for candidate in candidates]
    return torch.tensor(totals, dtype=torch.float64).softmax(0)


def chrf(texts: Sequence[str]) -> Scores:
    """``sacrebleu.sentence_chrf``, from 0 to 100."""
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.helpers import extract_all_char_ngrams

    counted = [extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in texts]
    precision = torch.zeros(len(texts), len(texts), dtype=torch.float64)
    recall = torch.zeros_like(precision)
    orders = torch.zeros_like(precision)
    for counts in zip(*counted, strict=True):
        common = common_ngrams(counts)
        total = common.diagonal()
        # An order counts only if both texts are long enough for it.
        counts_here = (total[:, None] > 0) & (total > 0)
        precision = precision + (common / total[:, None]).where(counts_here, 0.0)
        recall = recall + (common / total).where(counts_here, 0.0)
        orders = orders + counts_here
    precision = precision / orders.clamp(min=1)
    recall = recall / orders.clamp(min=1)
    weight = CHRF.BETA**2
    score = (1 + weight) * precision * recall / (weight * precision + recall)
    return 100 * score.where(precision + recall > 0, 0.0)


def bleu(texts: Sequence[str]) -> Scores:
    """``sacrebleu.sentence_bleu``, of effective order, from 0 to 100."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.helpers import extract_all_word_ngrams

    metric = BLEU(effective_order=True)
    orders = range(1, metric.max_ngram_order + 1)
    words = [metric.tokenizer(text.rstrip()) for text in texts]
    counted = [[extract_all_word_ngrams(line, n, n)[0] for n in orders] for line in words]
    by_order = [common_ngrams(counts) for counts in zip(*counted, strict=True)]
    # order hypothesis reference -> hypothesis reference order
    common = torch.stack(by_order, dim=-1).int()
    totals = common.diagonal().T.tolist()
    scores = [
        [
            metric.compute_bleu(
                correct=correct,
                total=list(totals[i]),
                sys_len=totals[i][0],
                ref_len=totals[j][0],
                smooth_method=metric.smooth_method,
                effective_order=True,
            ).score
            for j, correct in enumerate(row)
        ]
        for i, row in enumerate(common.tolist())
    ]
    return torch.tensor(scores, dtype=torch.float64)


def common_ngrams(counts: Sequence[Counter[Any]]) -> Scores:
    """Common n-grams of every two texts, with repetitions; the diagonal is the total of each."""
    columns: dict[tuple[Any, int], int] = {}
    indices = [
        (row, columns.setdefault((ngram, occurrence), len(columns)))
        for row, counter in enumerate(counts)
        for ngram, count in counter.items()
        for occurrence in range(count)
    ]
    has = torch.zeros(len(counts), len(columns), dtype=torch.float64)
    if indices:
        has[tuple(torch.tensor(indices).T)] = 1.0
    return has @ has.T


UTILITIES: dict[str, Utility] = {"chrf": chrf, "bleu": bleu}


@cache
def utility_named(name: str) -> Utility:
    """``chrf``, ``bleu``, or ``MODULE:CALLABLE``, called with a hypothesis and a reference."""
    if name in UTILITIES:
        return UTILITIES[name]
    module, _, attribute = name.partition(":")
    try:
        # An import runs code: a name without a callable is not imported.
        metric = getattr(own_module(module if attribute else ""), attribute)
        if not callable(metric):
            raise ValueError(f"{attribute} is no function")
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"decoding.utility={name} cannot be imported ({error}); choose "
            f"{', '.join(UTILITIES)} or MODULE:CALLABLE"
        ) from error

    def pairwise(texts: Sequence[str]) -> Scores:
        values = [[float(metric(text, reference)) for reference in texts] for text in texts]
        scores = torch.tensor(values, dtype=torch.float64)
        if not scores.isfinite().all():
            raise InputError(f"decoding.utility={name} gave a value that is not finite")
        return scores

    return pairwise
