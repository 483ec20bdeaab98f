"""Batched beam search, for many sentences at once.

A hypothesis is finished if it ends within the ``beam_size`` best candidates of its step. The best
candidates that do not end stay live, so a sentence has ``beam_size`` live hypotheses to its last
step. A sentence is done when no live hypothesis can enter the n-best list (``done``), or, with
``stopping=full`` and in a hopeless search, when ``beam_size`` hypotheses are finished.

Sources: Graves 2012, "Sequence Transduction with Recurrent Neural Networks", section 2.5, for
the search; Wu et al. 2016, section 7, for scores under a length penalty.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.decoding.search.search import (
    Advanced,
    Finished,
    Hypothesis,
    LogProbabilities,
    Rows,
    Sentences,
    StepFunction,
    run_search,
)
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS, EOS

BLOCK = 128
"""Candidates of a block; ``largest`` ranks blocks by their maxima first."""

HOPELESS_BELOW = math.log(1 / 4)
"""Mean log-probability of the tokens, EOS included, below which a hypothesis is hopeless."""


@dataclass(frozen=True)
class Live(Rows):
    """The live hypotheses, the best first; the log-probability of a free slot is ``-inf``."""

    tokens: Int[Tensor, "batch beam length"]
    log_probabilities: Float[Tensor, "batch beam"]


@dataclass(frozen=True)
class Candidates:
    """The best ``2 * beam`` continuations of a step, the best first."""

    log_probabilities: Float[Tensor, "batch candidates"]
    parents: Int[Tensor, "batch candidates"]
    tokens: Int[Tensor, "batch candidates"]

    def pick(self, order: Int[Tensor, "batch chosen"]) -> "Candidates":
        """Candidates by their index within the sentence."""
        return Candidates(*(part.gather(1, order) for part in vars(self).values()))


@dataclass(frozen=True)
class Beams(Rows):
    """The live and the best finished hypotheses of each sentence."""

    live: Live
    finished: Finished

    @property
    def tokens(self) -> Int[Tensor, "batch beam length"]:
        return self.live.tokens

    def advance(
        self, log_probabilities: LogProbabilities, sentences: Sentences, config: SearchConfig
    ) -> Advanced:
        """Finish the best continuations that end, and follow the others."""
        candidates = expand(self.live, log_probabilities)
        finished = finish(self.live, self.finished, candidates, config)
        live, parents = proceed(self.live, candidates)
        over = done(live, finished, sentences.limits, config)
        return Advanced(Beams(live, finished), over, candidates.log_probabilities, parents)

    def result(self, config: SearchConfig) -> Finished:
        return Finished(*(part[:, : config.nbest] for part in vars(self.finished).values()))


def beam_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig
) -> list[list[Hypothesis]]:
    """Up to ``nbest`` hypotheses per sentence, the best first; ``limits`` are in subwords."""
    sentences = Sentences(limits)
    return run_search(start(sentences, config.beam_size), step, sentences, config)


def start(sentences: Sentences, beam: int) -> Beams:
    """One empty hypothesis per sentence; the first step fills the other slots."""
    limits = sentences.limits
    shape = (len(limits), beam)
    free = torch.full(shape, -math.inf, device=limits.device)
    log_probabilities = free.clone()
    log_probabilities[:, 0] = 0.0
    tokens = limits.new_zeros((*shape, sentences.longest))
    return Beams(
        Live(limits.new_full((*shape, 1), BOS), log_probabilities),
        Finished(free, free, limits.new_zeros(shape), tokens),
    )


def largest(
    values: Float[Tensor, "batch many"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """The ``count`` largest of each row and their indices, the largest first.

    The result is the same as ``topk``'s, three times as fast on a CPU: all largest values are in
    the ``count`` blocks with the largest maxima.
    """
    blocks = values.size(1) // BLOCK
    if blocks <= count:
        best, indices = values.topk(count)
        return best, indices
    whole = values[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
    within = torch.arange(BLOCK, device=values.device)
    # batch count block -> batch (count block)
    near = (whole.amax(-1).topk(count).indices[..., None] * BLOCK + within).flatten(1)
    remainder = torch.arange(blocks * BLOCK, values.size(1), device=values.device)
    near = torch.cat((near, remainder.expand(len(values), -1)), dim=1)
    best, order = values.gather(1, near).topk(count)
    return best, near.gather(1, order)


def expand(live: Live, log_probabilities: LogProbabilities) -> Candidates:
    """Rank the continuations of all hypotheses of a sentence together."""
    batch, beam, vocab = log_probabilities.shape
    totals = log_probabilities.add_(live.log_probabilities[..., None])
    # batch beam vocab -> batch (beam vocab)
    best, index = largest(totals.view(batch, beam * vocab), 2 * beam)
    return Candidates(best, index // vocab, index % vocab)


def finish(
    live: Live, finished: Finished, candidates: Candidates, config: SearchConfig
) -> Finished:
    """Rank the finished hypotheses and the best candidates that end."""
    beam = live.tokens.size(1)
    length = live.tokens.size(2) - 1
    kept = finished.scores.size(1)
    parents = candidates.parents[:, :beam]
    tokens = _pick(live.tokens[:, :, 1:], parents)
    tokens = F.pad(tokens, (0, finished.tokens.size(2) - length))
    best = candidates.log_probabilities[:, :beam]
    best = best.masked_fill(candidates.tokens[:, :beam] != EOS, -math.inf)
    scores = torch.cat((finished.scores, best / config.penalty(length + 1)), dim=1)
    # Stable: in a tie, the hypothesis that ended first stays.
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :kept]
    lengths = torch.full_like(parents, length)
    return Finished(
        scores.gather(1, order),
        torch.cat((finished.log_probabilities, best), dim=1).gather(1, order),
        torch.cat((finished.lengths, lengths), dim=1).gather(1, order),
        _pick(torch.cat((finished.tokens, tokens), dim=1), order),
    )


def proceed(live: Live, candidates: Candidates) -> tuple[Live, Int[Tensor, "batch beam"]]:
    """Follow the best candidates that do not end; return the parent of each."""
    beam = live.tokens.size(1)
    # At most one continuation of each hypothesis ends, so that enough candidates remain.
    ends = (candidates.tokens == EOS).to(torch.uint8)
    chosen = candidates.pick(ends.sort(dim=1, stable=True).indices[:, :beam])
    tokens = torch.cat((_pick(live.tokens, chosen.parents), chosen.tokens[..., None]), dim=2)
    return Live(tokens, chosen.log_probabilities), chosen.parents


def done(
    live: Live, finished: Finished, limits: Int[Tensor, " batch"], config: SearchConfig
) -> Bool[Tensor, " batch"]:
    """Return which sentences are done, by ``config.stopping``.

    With ``exact``, no further step can change the n-best list of a sentence. A log-probability only
    falls, and the penalty is monotone in the length. So the best possible score of a live
    hypothesis is its present log-probability divided by the penalty of its shortest or its longest
    possible target.

    For a text that the model cannot translate, this bound stays far above all scores almost to the
    limit. Such a search is hopeless if no hypothesis, finished or live, has a mean log-probability
    of ``HOPELESS_BELOW`` or more. A hopeless search ends as with ``full``.
    """
    length = live.tokens.size(2) - 1
    # The first hypothesis is not always the most probable one: diverse groups rank by more.
    best = live.log_probabilities.amax(1)
    shortest = config.penalty(length + 1)
    longest = config.penalty(limits + 1)
    over = best / longest.clamp(min=shortest) <= finished.scores[:, config.nbest - 1]
    full = finished.scores[:, -1] > -math.inf
    if config.stopping == "full":
        return over | full
    means = (finished.log_probabilities / (finished.lengths + 1)).amax(1)
    return over | (full & (means.maximum(best / length) < HOPELESS_BELOW))


def _pick(
    tokens: Int[Tensor, "batch beam length"], index: Int[Tensor, "batch chosen"]
) -> Int[Tensor, "batch chosen length"]:
    return tokens.gather(1, index[..., None].expand(-1, -1, tokens.size(2)))
