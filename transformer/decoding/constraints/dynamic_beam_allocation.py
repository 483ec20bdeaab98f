"""Beam search for translations that must say given phrases: dynamic beam allocation.

Hypotheses compete within banks, one bank for each number of pieces of the phrases that they have
said. The beam is wider than without phrases, so that each bank is sure of one slot, and the last,
which has said all, of half as many as there were without; what is left goes to the best, of
whichever bank. Besides the best continuations, those are tried that say the next piece of a phrase.
Only what has said all phrases may end; at its limit a sentence ends however far it is, and counts
only if nothing better did. It does not know the model, nor text.

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
from transformer.decoding.constraints.phrase_progress import MustPhrases, half_phrase
from transformer.decoding.search.beam import (
    Candidates,
    Live,
    done,
    expand,
    finish,
    hypotheses,
    proceed,
    start,
)
from transformer.decoding.search.interface import (
    Hypothesis,
    SearchConfig,
    StepFunction,
    check_no_nan,
    constrain,
)


def allocated_search(
    step: StepFunction,
    limits: Int[Tensor, " batch"],
    config: SearchConfig,
    must: MustPhrases,
    continues_word: Bool[Tensor, " vocab"],
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses a sentence, the best first, in the order of the sentences.

    Args:
        step: Gives log-probabilities, as wide as the widest of ``must.widths``; it starts before
            the first token.
        limits: The most pieces of each sentence, on the device of the step.
        config: How wide to search and how to compare.
        must: The phrases, before the first token.
        continues_word: Pieces that let the word before them go on.

    Raises:
        NotANumber: The step gave NaN.
    """
    found: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    slots = must.widths(config.beam_size)
    width = int(slots.max())
    live, _ = start(limits, width)
    _, finished = start(limits, config.beam_size)
    unmet, must = finished, must.spread(width)
    while True:
        length = live.tokens.size(2) - 1
        log_probabilities = step(live.tokens[:, :, -1])
        constrain(log_probabilities, live.tokens, live.limits, config)
        full = live.limits <= length
        log_probabilities[..., EOS].masked_fill_(~(must.met | full[:, None]), -math.inf)
        candidates = _candidates(live, log_probabilities, must, slots, continues_word)
        check_no_nan(candidates.log_probabilities, length)
        said = must.proceed(candidates.parents, candidates.tokens)
        whole = must.met.gather(1, candidates.parents)
        ends = _best_ends(candidates, said.banks, config.beam_size)
        finished = finish(live, finished, _only(candidates, ends & whole), config)
        if full.any():
            unmet = finish(live, unmet, _only(candidates, ends & ~whole), config)
        order, going = _allocation(candidates, said, slots, width, config.beam_size)
        live, parents = proceed(live, going)
        must = said.pick(order)
        over = done(live, finished, config)
        if over.any():
            for row in over.nonzero().squeeze(1).tolist():
                best = hypotheses(finished, row, config.nbest)
                found[live.positions[row]] = best or hypotheses(unmet, row, config.nbest)
            alive = (~over).nonzero().squeeze(1)
            if not len(alive):
                return found
            finished, unmet = finished.select(alive), unmet.select(alive)
            live, must = live.select(alive), must.select(alive)
            slots, parents = slots[alive], parents[alive]
            step.keep(alive)
        step.reorder(parents)


def _candidates(
    live: Live,
    log_probabilities: Float[Tensor, "batch beam vocab"],
    must: MustPhrases,
    slots: Int[Tensor, " batch"],
    continues_word: Bool[Tensor, " vocab"],
) -> Candidates:
    """The best continuations of all, what says more of a phrase, and the best of each hypothesis.

    Each once, the best first; what is there for the sake of the shape has ``-inf``.
    """
    _, beam, vocab = log_probabilities.shape
    best = expand(live, log_probabilities)  # from here on these are totals
    totals = log_probabilities
    ranks = torch.arange(2 * beam, device=slots.device)
    ranked = best.log_probabilities.masked_fill(ranks >= 2 * slots[:, None], -math.inf)
    if must.closing.any():
        # What has just said a phrase is asked for the best that lets the phrase count.
        totals = totals.masked_fill(must.closing[..., None] & continues_word, -math.inf)
    # batch beam phrase, batch beam 1 -> batch beam tried
    tried = torch.cat((must.proposals[must.states], totals.argmax(-1, keepdim=True)), dim=2)
    values = log_probabilities.gather(2, tried.clamp(min=0)).masked_fill(tried < 0, -math.inf)
    parents = torch.arange(beam, device=slots.device)[None, :, None].expand_as(tried)
    found = Candidates(
        torch.cat((ranked, values.flatten(1)), dim=1),
        torch.cat((best.parents, parents.flatten(1)), dim=1),
        torch.cat((best.tokens, tried.clamp(min=0).flatten(1)), dim=1),
    )
    found = _pick(found, (found.parents * vocab + found.tokens).sort(dim=1, stable=True).indices)
    again = (found.parents[:, 1:] == found.parents[:, :-1]) & (
        found.tokens[:, 1:] == found.tokens[:, :-1]
    )
    once = found.log_probabilities.clone()
    # Of two the same, one may be beyond the ranks of its sentence.
    once[:, :-1] = once[:, :-1].maximum(once[:, 1:].masked_fill(~again, -math.inf))
    once[:, 1:].masked_fill_(again, -math.inf)
    found = replace(found, log_probabilities=once)
    return _pick(found, once.sort(dim=1, descending=True, stable=True).indices)


def _best_ends(
    candidates: Candidates,
    banks: Int[Tensor, "batch candidates"],
    beam_size: int,
) -> Bool[Tensor, "batch candidates"]:
    """Ends within the best ``beam_size`` of those that have said most; at the limit not all."""
    valid = candidates.log_probabilities > -math.inf
    fullest = banks.masked_fill(~valid, -1).amax(1, keepdim=True)
    compete = valid & (banks == fullest)
    ranks = compete.cumsum(1) - 1
    return compete & (ranks < beam_size) & (candidates.tokens == EOS)


def _allocation(
    candidates: Candidates,
    said: MustPhrases,
    slots: Int[Tensor, " batch"],
    width: int,
    beam_size: int,
) -> tuple[Int[Tensor, "batch beam"], Candidates]:
    """Choose which candidates go on: the places of those, and the same, the best first."""
    goes_on = (candidates.tokens != EOS) & (candidates.log_probabilities > -math.inf)
    # batch candidates -> batch candidates bank
    members = F.one_hot(said.banks, int(said.totals.max()) + 1) * goes_on[..., None]
    ranks = (members.cumsum(1) - 1).gather(2, said.banks[..., None]).squeeze(2)
    last = said.banks == said.totals[:, None]
    sure = ranks < torch.where(last, half_phrase(beam_size), 1)
    # First what its bank is sure of, then the best of the rest.
    order = torch.where(goes_on, (~sure).long(), 2).sort(dim=1, stable=True).indices
    order = order[:, :width]
    chosen = _pick(candidates, order)
    beyond = torch.arange(order.size(1), device=slots.device) >= slots[:, None]
    kept = chosen.log_probabilities.masked_fill(beyond | ~goes_on.gather(1, order), -math.inf)
    best_first = kept.sort(dim=1, descending=True, stable=True).indices
    chosen = _pick(replace(chosen, log_probabilities=kept), best_first)
    return order.gather(1, best_first), chosen


def _only(candidates: Candidates, wanted: Bool[Tensor, "batch candidates"]) -> Candidates:
    """These first, and the others with ``-inf``."""
    values = candidates.log_probabilities.masked_fill(~wanted, -math.inf)
    order = values.sort(dim=1, descending=True, stable=True).indices
    return _pick(replace(candidates, log_probabilities=values), order)


def _pick(candidates: Candidates, order: Int[Tensor, "batch chosen"]) -> Candidates:
    return Candidates(
        candidates.log_probabilities.gather(1, order),
        candidates.parents.gather(1, order),
        candidates.tokens.gather(1, order),
    )
