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

``MustPhrases`` is the progress of each hypothesis through its phrases. ``PhraseAutomaton`` reads it
from the text, so that a phrase counts however the model cuts it. The proposed next subword is that
of the tokenizer's segmentation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer.decoding.constraints.phrase_automaton import (
    EDGE,
    PhraseAutomaton,
    Spelling,
    Vocabulary,
    with_edges,
)
from transformer.decoding.search import beam
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
from transformer.settings.tokenizer import EOS


def complete_slots(beam_size: int) -> int:
    """Slots guaranteed to hypotheses that contain all phrases."""
    return (beam_size + 1) // 2


def beam_width(beam_size: int, subwords: int) -> int:
    """Slots of a sentence: one for each subword of its phrases, and one and a half plain beams."""
    return beam_size + complete_slots(beam_size) + subwords


Cut = tuple[Sequence[int], Sequence[Spelling]]
"""A phrase: its subwords within a sentence, and its possible spellings."""


@dataclass(frozen=True)
class MustPhrases:
    """The phrases of each sentence and the state of each hypothesis in each of them."""

    automaton: PhraseAutomaton
    """One set a phrase, with its spellings."""
    units: Int[Tensor, " states"]
    """Subwords of the phrase that each state has; all if it was found."""
    spaced: Bool[Tensor, " states"]
    """Whether a state has only the space before the phrase."""
    proposals: Int[Tensor, " states"]
    """The subword that continues the phrase from each state; -1 if there is none."""
    totals: Int[Tensor, " batch"]
    """Subwords of all phrases of a sentence."""
    most: int
    states: Int[Tensor, "batch beam phrase"]
    continues_word: Bool[Tensor, " vocab"]

    @classmethod
    def compile(
        cls, sentences: Sequence[Sequence[Cut]], vocabulary: Vocabulary, device: torch.device
    ) -> "MustPhrases":
        """The phrases of a batch, one hypothesis a sentence, before its first token."""
        # The first set is the empty phrase: always found, it pads sentences with fewer phrases.
        cuts: list[Cut] = [((), [()])]
        rows = []
        for phrases in sentences:
            rows.append(list(range(len(cuts), len(cuts) + len(phrases))))
            cuts += phrases
        automaton = PhraseAutomaton([spellings for _, spellings in cuts], vocabulary)
        units, spaced, proposals = _state_tables(automaton, cuts, vocabulary)
        sets = pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], batch_first=True)
        totals = [sum(len(subwords) for subwords, _ in row) for row in sentences]
        return cls(
            automaton=automaton.to(device),
            units=units.to(device),
            spaced=spaced.to(device),
            proposals=proposals.to(device),
            totals=torch.tensor(totals, device=device),
            most=max(totals),
            states=automaton.starts[sets.to(device)][:, None],
            continues_word=vocabulary.continues_word.to(device),
        )

    def widths(self, beam_size: int) -> Int[Tensor, " batch"]:
        return self.totals + beam_width(beam_size, 0)

    def select(self, rows: Int[Tensor, " kept"]) -> "MustPhrases":
        return replace(self, totals=self.totals[rows], states=self.states[rows])

    def pick(self, index: Int[Tensor, "batch chosen"]) -> "MustPhrases":
        """Hypotheses by their index within the sentence."""
        index = index[..., None].expand(-1, -1, self.states.size(2))
        return replace(self, states=self.states.gather(1, index))

    def proceed(
        self, parents: Int[Tensor, "batch chosen"], tokens: Int[Tensor, "batch chosen"]
    ) -> "MustPhrases":
        states = self.pick(parents).states
        states = self.automaton.read(states, tokens[..., None].expand_as(states))
        return replace(self, states=states)

    @property
    def banks(self) -> Int[Tensor, "batch beam"]:
        """Phrase subwords of each hypothesis: of complete phrases, and of the current one.

        Phrases that begin alike share their first subwords, which count once: otherwise their
        common beginning would displace hypotheses that have more of one phrase.
        """
        units = self.units[self.states]
        found = self.automaton.found[self.states]
        current = units.maximum(self.spaced[self.states].long()).masked_fill(found, 0)
        count = units.masked_fill(~found, 0).sum(-1) + current.amax(-1)
        return torch.where(self.met, self.totals[:, None], count)

    @property
    def met(self) -> Bool[Tensor, "batch beam"]:
        """Whether the text contains all phrases if it ends here."""
        return self.automaton.found_at_end[self.states].all(-1)

    @property
    def closing(self) -> Bool[Tensor, "batch beam"]:
        """Whether a phrase is complete only if its last word does not continue."""
        lacks_edge = self.automaton.found_at_end & ~self.automaton.found
        return lacks_edge[self.states].any(-1)


def _state_tables(
    automaton: PhraseAutomaton, cuts: Sequence[Cut], vocabulary: Vocabulary
) -> tuple[Int[Tensor, " states"], Bool[Tensor, " states"], Int[Tensor, " states"]]:
    """``units``, ``spaced`` and ``proposals``, by reading the subwords of each phrase once."""
    only_space = torch.zeros_like(automaton.found)
    units = torch.zeros_like(automaton.depths)
    proposals = torch.full_like(automaton.depths, -1)
    bounds = [*automaton.starts.tolist(), len(units) + automaton.starts[0].item()]
    for start, end, (subwords, spellings) in zip(bounds[:-1], bounds[1:], cuts, strict=True):
        if not subwords:
            continue
        states = slice(start - bounds[0], end - bounds[0])
        depths = automaton.depths[states]
        spaced = automaton.spaced[states]
        # Views, which the next lines fill.
        phrase_units = units[states]
        phrase_proposals = proposals[states]
        # If the model has cut the phrase differently, the longest subword that continues it.
        phrase = spellings[0]
        counts = accumulate(symbol != EDGE for symbol in with_edges(phrase))
        tails = [subwords[0], *(vocabulary.longest(phrase[count:]) for count in counts)]
        phrase_proposals[:] = torch.tensor(tails)[depths.clamp(max=len(tails) - 1)]
        state = torch.tensor(start)
        for subword, following in zip(subwords, [*subwords[1:], -1], strict=True):
            state = automaton.read(state, torch.tensor(subword))
            depth = automaton.depths[state]
            here = depths == depth
            if depth == 0:  # the space before a word may be a subword of its own
                here &= spaced
                only_space[states] = here
            phrase_units += (here & (depth > 0)) | (depths > depth)
            phrase_proposals[here] = following
        phrase_units[automaton.found_at_end[states]] = len(subwords)
        phrase_proposals[phrase_units == len(subwords)] = -1
    return units, only_space, proposals


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
        live = self.live
        must = self.must
        length = live.tokens.size(2) - 1
        width = live.tokens.size(1)
        full = sentences.limits <= length
        log_probabilities[..., EOS].masked_fill_(~(must.met | full[:, None]), -math.inf)
        candidates = _candidates(live, log_probabilities, must, self.slots)
        progress = must.proceed(candidates.parents, candidates.tokens)
        whole = must.met.gather(1, candidates.parents)
        ends = _best_ends(candidates, progress.banks, config.beam_size)
        finished = beam.finish(live, self.finished, _only(candidates, ends & whole), config)
        unmet = self.unmet
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
        parts = []
        for name, finished in vars(self.finished).items():
            # batch -> batch 1 …
            is_none = none.view(-1, *[1] * (finished.dim() - 1))
            chosen = torch.where(is_none, getattr(self.unmet, name), finished)
            parts.append(chosen[:, : config.nbest])
        return Finished(*parts)


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
    candidates = beam.Candidates(
        torch.cat((ranked, values.flatten(1)), dim=1),
        torch.cat((best.parents, parents.flatten(1)), dim=1),
        torch.cat((best.tokens, tried.clamp(min=0).flatten(1)), dim=1),
    )
    # Duplicates become neighbors.
    number = candidates.parents * vocab + candidates.tokens
    order = number.sort(dim=1, stable=True).indices
    candidates = candidates.pick(order)
    number = number.gather(1, order)
    again = number[:, 1:] == number[:, :-1]
    once = candidates.log_probabilities.clone()
    # One of two duplicates may be beyond the ranks of its sentence.
    once[:, :-1] = once[:, :-1].maximum(once[:, 1:].masked_fill(~again, -math.inf))
    once[:, 1:].masked_fill_(again, -math.inf)
    return _ranked(candidates, once)


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
