"""Beam search for translations that must contain given phrases: dynamic beam allocation.

Hypotheses compete within banks: hypotheses with the same number of phrase subwords form a bank. The
beam is wider than without phrases. Each bank has at least one slot. The last bank, with all
phrases, has at least half of the plain beam. The best hypotheses of any bank get the remaining
slots. The search tries the best continuations, and the continuations of phrases. Only a hypothesis
with all phrases may end. At its limit any hypothesis may end, but it counts only if no hypothesis
with all phrases ended.

Source: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for
Neural Machine Translation", section 4; in tensors, as in Hu et al. 2019, "Improved Lexically
Constrained Decoding for Translation and Monolingual Rewriting", section 4.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.constraints.phrase_progress import MustPhrases, complete_slots
from transformer.decoding.search import beam
from transformer.decoding.search.interface import Hypothesis, LogProbabilities, StepFunction
from transformer.decoding.search.search import Advanced, Finished, Rows, Sentences, run_search
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import EOS


@dataclass(frozen=True)
class Allocated(Rows):
    """Beams of ``slots`` hypotheses, their phrases, and those that ended without all phrases."""

    live: beam.Live
    finished: Finished
    unmet: Finished
    must: MustPhrases
    slots: Int[Tensor, " batch"]

    @property
    def tokens(self) -> Int[Tensor, "batch beam length"]:
        return self.live.tokens

    def advance(
        self, log_probabilities: LogProbabilities, sentences: Sentences, config: SearchConfig
    ) -> Advanced:
        """Finish hypotheses with all phrases, and divide the beam among the rest."""
        live, finished, unmet, must = self.live, self.finished, self.unmet, self.must
        length, width = live.tokens.size(2) - 1, live.tokens.size(1)
        full = sentences.limits <= length
        log_probabilities[..., EOS].masked_fill_(~(must.met | full[:, None]), -math.inf)
        candidates = _candidates(live, log_probabilities, must, self.slots)
        progress = must.proceed(candidates.parents, candidates.tokens)
        whole = must.met.gather(1, candidates.parents)
        ends = _best_ends(candidates, progress.banks, config.beam_size)
        finished = beam.finish(live, finished, _only(candidates, ends & whole), config)
        if sentences.shortest <= length:
            unmet = beam.finish(live, unmet, _only(candidates, ends & ~whole), config)
        order, chosen = _allocation(candidates, progress, self.slots, width, config.beam_size)
        live, parents = beam.proceed(live, chosen)
        over = beam.done(live, finished, sentences.limits, config)
        state = Allocated(live, finished, unmet, progress.pick(order), self.slots)
        return Advanced(state, over, candidates.log_probabilities, parents)

    def result(self, config: SearchConfig) -> Finished:
        """The n-best list; if no hypothesis has all phrases, hypotheses without them."""
        none = (self.finished.scores == -math.inf).all(1)
        parts = zip(vars(self.finished).values(), vars(self.unmet).values(), strict=True)
        found = (
            # batch -> batch 1 …
            torch.where(none.view(-1, *[1] * (best.dim() - 1)), unmet, best)
            for best, unmet in parts
        )
        return Finished(*(part[:, : config.nbest] for part in found))


def allocated_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig, must: MustPhrases
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses per sentence with the phrases; see ``beam_search``."""
    sentences = Sentences(limits)
    slots = must.widths(config.beam_size)
    width = int(slots.max())
    live = beam.start(sentences, width).live
    finished = beam.start(sentences, config.beam_size).finished
    must = replace(must, states=must.states.expand(-1, width, -1))
    state = Allocated(live, finished, finished, must, slots)
    return run_search(state, step, sentences, config)


def _candidates(
    live: beam.Live,
    log_probabilities: LogProbabilities,
    must: MustPhrases,
    slots: Int[Tensor, " batch"],
) -> beam.Candidates:
    """The best continuations, those of phrases, and the best of each hypothesis, each once."""
    _, width, vocab = log_probabilities.shape
    best = beam.expand(live, log_probabilities)  # adds the totals to log_probabilities
    totals = log_probabilities
    ranks = torch.arange(2 * width, device=slots.device)
    ranked = best.log_probabilities.masked_fill(ranks >= 2 * slots[:, None], -math.inf)
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
    banks = torch.arange(progress.most + 1, device=slots.device)
    members = (progress.banks[..., None] == banks) & live[..., None]
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
    order = log_probabilities.sort(dim=1, descending=True, stable=True).indices
    return replace(candidates, log_probabilities=log_probabilities).pick(order)
