"""Beam search for translations that must contain given phrases: dynamic beam allocation.

Hypotheses compete within banks, one bank for each number of phrase subwords that they contain. The
beam is wider than without phrases. Each bank is guaranteed one slot; the last, whose hypotheses
contain all phrases, half of the plain beam. The best hypotheses of any bank get the remaining
slots. Besides the best continuations, the search tries those that continue a phrase. Only a
hypothesis with all phrases may end; at its limit any may, and counts only if no better one ended.
It does not know the model, nor text.

Source: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for
Neural Machine Translation", section 4; in tensors, as in Hu et al. 2019, "Improved Lexically
Constrained Decoding for Translation and Monolingual Rewriting", section 4.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.data.tokenization.tokenizer import EOS
from transformer.decoding.constraints.phrase_progress import MustPhrases, complete_slots
from transformer.decoding.search import beam
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis, StepFunction, check_no_nan, constrain


def allocated_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig, must: MustPhrases
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses a sentence, the best first, in the order of the sentences.

    The step is as wide as the widest of ``must.widths``; ``must`` are the phrases before the first
    token. Other arguments and errors are those of ``beam_search``.
    """
    found: list[list[Hypothesis]] = [[] for _ in limits]
    slots = must.widths(config.beam_size)
    width = int(slots.max())
    live, finished = beam.start(limits, width)[0], beam.start(limits, config.beam_size)[1]
    unmet, must = finished, replace(must, states=must.states.expand(-1, width, -1))
    while True:
        log_probabilities = step(live.tokens[:, :, -1])
        constrain(log_probabilities, live.tokens, live.limits, config)
        full = live.limits < live.tokens.size(2)
        log_probabilities[..., EOS].masked_fill_(~(must.met | full[:, None]), -math.inf)
        candidates = _candidates(live, log_probabilities, must, slots)
        check_no_nan(candidates.log_probabilities, live.tokens.size(2) - 1)
        progress = must.proceed(candidates.parents, candidates.tokens)
        whole = must.met.gather(1, candidates.parents)
        ends = _best_ends(candidates, progress.banks, config.beam_size)
        finished = beam.finish(live, finished, _only(candidates, ends & whole), config)
        if full.any():
            unmet = beam.finish(live, unmet, _only(candidates, ends & ~whole), config)
        order, chosen = _allocation(candidates, progress, slots, width, config.beam_size)
        (live, parents), must = beam.proceed(live, chosen), progress.pick(order)
        over = beam.done(live, finished, config)
        if over.any():
            for row in over.nonzero().squeeze(1).tolist():
                ended = beam.hypotheses(finished, row, config.nbest)
                found[live.sentences[row]] = ended or beam.hypotheses(unmet, row, config.nbest)
            if over.all():
                return found
            alive = (~over).nonzero()[:, 0]
            finished, unmet = finished.select(alive), unmet.select(alive)
            live, must = live.select(alive), must.select(alive)
            slots, parents = slots[alive], parents[alive]
            step.keep(alive)
        step.reorder(parents)


def _candidates(
    live: beam.Live,
    log_probabilities: Float[Tensor, "batch beam vocab"],
    must: MustPhrases,
    slots: Int[Tensor, " batch"],
) -> beam.Candidates:
    """The best continuations of all, those that continue a phrase, and the best of each hypothesis.

    Without duplicates, the best first; padding has ``-inf``.
    """
    _, width, vocab = log_probabilities.shape
    best = beam.expand(live, log_probabilities)  # adds the totals to log_probabilities
    totals = log_probabilities
    ranks = torch.arange(2 * width, device=slots.device)
    ranked = best.log_probabilities.masked_fill(ranks >= 2 * slots[:, None], -math.inf)
    if must.closing.any():
        # After the last subword of a phrase, the word must not continue.
        totals = totals.masked_fill(must.closing[..., None] & must.continues_word, -math.inf)
    # batch beam phrase, batch beam 1 -> batch beam tried
    tried = torch.cat((must.proposals[must.states], totals.argmax(-1, keepdim=True)), dim=2)
    values = log_probabilities.gather(2, tried.clamp(min=0)).masked_fill(tried < 0, -math.inf)
    parents = torch.arange(width, device=slots.device)[None, :, None].expand_as(tried)
    found = beam.Candidates(
        torch.cat((ranked, values.flatten(1)), dim=1),
        torch.cat((best.parents, parents.flatten(1)), dim=1),
        torch.cat((best.tokens, tried.clamp(min=0).flatten(1)), dim=1),
    )
    found = found.pick((found.parents * vocab + found.tokens).sort(dim=1, stable=True).indices)
    again = (found.parents[:, 1:] == found.parents[:, :-1]) & (
        found.tokens[:, 1:] == found.tokens[:, :-1]
    )
    once = found.log_probabilities.clone()
    # One of two duplicates may be beyond the ranks of its sentence.
    once[:, :-1] = once[:, :-1].maximum(once[:, 1:].masked_fill(~again, -math.inf))
    once[:, 1:].masked_fill_(again, -math.inf)
    return _ranked(found, once)


def _best_ends(
    candidates: beam.Candidates, banks: Int[Tensor, "batch candidates"], beam_size: int
) -> Bool[Tensor, "batch candidates"]:
    """Ends within the best ``beam_size`` of the fullest bank."""
    valid = candidates.log_probabilities > -math.inf
    fullest = banks.masked_fill(~valid, -1).amax(1, keepdim=True)
    compete = valid & (banks == fullest)
    ranks = compete.cumsum(1) - 1
    return compete & (ranks < beam_size) & (candidates.tokens == EOS)


def _allocation(
    candidates: beam.Candidates,
    progress: MustPhrases,
    slots: Int[Tensor, " batch"],
    width: int,
    beam_size: int,
) -> tuple[Int[Tensor, "batch beam"], beam.Candidates]:
    """Choose the live candidates: their indices, and the candidates, the best first."""
    live = (candidates.tokens != EOS) & (candidates.log_probabilities > -math.inf)
    # batch candidates -> batch candidates bank
    members = F.one_hot(progress.banks, int(progress.totals.max()) + 1) * live[..., None]
    ranks = (members.cumsum(1) - 1).gather(2, progress.banks[..., None]).squeeze(2)
    last = progress.banks == progress.totals[:, None]
    guaranteed = ranks < torch.where(last, complete_slots(beam_size), 1)
    # First the guaranteed slots of each bank, then the best of the rest.
    order = torch.where(live, (~guaranteed).long(), 2).sort(dim=1, stable=True).indices
    order = order[:, :width]
    chosen = candidates.pick(order)
    beyond = torch.arange(order.size(1), device=slots.device) >= slots[:, None]
    kept = chosen.log_probabilities.masked_fill(beyond | ~live.gather(1, order), -math.inf)
    best_first = kept.sort(dim=1, descending=True, stable=True).indices
    return order.gather(1, best_first), replace(chosen, log_probabilities=kept).pick(best_first)


def _only(
    candidates: beam.Candidates, selected: Bool[Tensor, "batch candidates"]
) -> beam.Candidates:
    """The selected candidates first; the rest gets ``-inf``."""
    return _ranked(candidates, candidates.log_probabilities.masked_fill(~selected, -math.inf))


def _ranked(
    candidates: beam.Candidates, log_probabilities: Float[Tensor, "batch candidates"]
) -> beam.Candidates:
    """With these log-probabilities, the best first."""
    order = log_probabilities.sort(dim=1, descending=True, stable=True).indices
    return replace(candidates, log_probabilities=log_probabilities).pick(order)
