"""How far each hypothesis is in saying the phrases that it must say.

Progress is read off the text (``PhraseAutomaton``), so that a phrase counts however the model cuts
it; what to say next is the next piece of the phrase as the tokenizer cuts it. A phrase that is
started and abandoned is back at its beginning. It does not know how hypotheses are chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.decoding.constraints.phrase_automaton import EDGE, PhraseAutomaton, with_edges
from transformer.decoding.constraints.vocabulary_spelling import Spelling, Vocabulary


def half_phrase(beam_size: int) -> int:
    """Slots that those are sure of that have said all."""
    return (beam_size + 1) // 2


def beam_width(beam_size: int, subwords: int) -> int:
    """Slots of a sentence whose phrases have so many pieces: one more for each, and a half more."""
    return beam_size + half_phrase(beam_size) + subwords


Cut = tuple[Sequence[int], Sequence[Spelling]]
"""A phrase: its pieces, as a word within a sentence, and how it may be spelt."""


@dataclass(frozen=True)
class MustPhrases:
    """The phrases of each sentence and the state of each hypothesis in each of them.

    Attributes:
        automaton: One set a phrase, the spellings of it.
        units: Of each state, how many pieces of the phrase have been said; all if it was found.
        spaced: Of each state, whether only the space before the phrase has been said.
        proposals: Of each state, the piece that says more of the phrase, -1 where none does.
        totals: Pieces of all phrases of a sentence.
        states: Where each hypothesis is.
    """

    automaton: PhraseAutomaton
    units: Int[Tensor, " states"]
    spaced: Bool[Tensor, " states"]
    proposals: Int[Tensor, " states"]
    totals: Int[Tensor, " batch"]
    states: Int[Tensor, "batch beam phrase"]

    @classmethod
    def of(
        cls, sentences: Sequence[Sequence[Cut]], vocabulary: Vocabulary, device: torch.device
    ) -> "MustPhrases":
        """The phrases of a batch, one hypothesis a sentence, before its first token."""
        # The first set is of no phrase at all: always found, it fills sentences with fewer.
        cuts: list[Cut] = [((), [()])]
        rows = []
        for phrases in sentences:
            rows.append(list(range(len(cuts), len(cuts) + len(phrases))))
            cuts += phrases
        automaton = PhraseAutomaton([spellings for _, spellings in cuts], vocabulary)
        units, spaced, proposals = _along(automaton, cuts, vocabulary)
        most = max(map(len, rows))
        sets = torch.tensor([row + [0] * (most - len(row)) for row in rows])
        totals = torch.tensor([sum(len(subwords) for subwords, _ in row) for row in sentences])
        states = automaton.starts[sets][:, None]
        parts = (part.to(device) for part in (units, spaced, proposals, totals, states))
        return cls(automaton.to(device), *parts)

    def widths(self, beam_size: int) -> Int[Tensor, " batch"]:
        """``beam_width`` of each sentence."""
        return self.totals + beam_width(beam_size, 0)

    def spread(self, beam: int) -> "MustPhrases":
        """So many hypotheses a sentence, each like the first."""
        return replace(self, states=self.states[:, :1].expand(-1, beam, -1))

    def select(self, rows: Int[Tensor, " kept"]) -> "MustPhrases":
        """Only these sentences."""
        return replace(self, totals=self.totals[rows], states=self.states[rows])

    def pick(self, index: Int[Tensor, "batch chosen"]) -> "MustPhrases":
        """Hypotheses by their place within the sentence."""
        index = index[..., None].expand(-1, -1, self.states.size(2))
        return replace(self, states=self.states.gather(1, index))

    def proceed(
        self, parents: Int[Tensor, "batch chosen"], tokens: Int[Tensor, "batch chosen"]
    ) -> "MustPhrases":
        """Let these hypotheses be continued by these tokens."""
        states = self.pick(parents).states
        return replace(
            self, states=self.automaton.read(states, tokens[..., None].expand_as(states))
        )

    @property
    def banks(self) -> Int[Tensor, "batch beam"]:
        """Pieces that each hypothesis has said: of whole phrases, and of the one it is at.

        Phrases that begin alike are at the same pieces, which count once: else the beginning of
        two would pass for more than it is, and keep those out that go on with one.
        """
        units, found = self.units[self.states], self.automaton.found[self.states]
        begun = units.maximum(self.spaced[self.states].long()).masked_fill(found, 0)
        said = units.masked_fill(~found, 0).sum(-1) + begun.amax(-1)
        return torch.where(self.met, self.totals[:, None], said)

    @property
    def met(self) -> Bool[Tensor, "batch beam"]:
        """Whether all phrases would have occurred, should the text end here."""
        return self.automaton.found_at_end[self.states].all(-1)

    @property
    def closing(self) -> Bool[Tensor, "batch beam"]:
        """Whether a phrase has just been said, and counts only if its last word does not go on."""
        found, at_end = self.automaton.found, self.automaton.found_at_end
        return (at_end & ~found)[self.states].any(-1)


def _along(
    automaton: PhraseAutomaton, cuts: Sequence[Cut], vocabulary: Vocabulary
) -> tuple[Int[Tensor, " states"], Bool[Tensor, " states"], Int[Tensor, " states"]]:
    """``units``, ``spaced`` and ``proposals``, by reading the pieces of each phrase once."""
    only_space = torch.zeros_like(automaton.found)
    units = torch.zeros_like(automaton.depths)
    proposals = torch.full_like(automaton.depths, -1)
    bounds = [*automaton.starts.tolist(), len(units) + automaton.starts[0].item()]
    for start, end, (subwords, spellings) in zip(bounds[:-1], bounds[1:], cuts, strict=True):
        if not subwords:
            continue
        own = slice(start - bounds[0], end - bounds[0])
        depths, spaced = automaton.depths[own], automaton.spaced[own]
        own_units, own_proposals = units[own], proposals[own]
        # Where the model has cut the phrase in its own way, it goes on with what is left.
        tails = [subwords[0], *_tails(spellings[0], vocabulary)]
        own_proposals[:] = torch.tensor(tails)[depths.clamp(max=len(tails) - 1)]
        state = torch.tensor(start)
        for subword, following in zip(subwords, [*subwords[1:], -1], strict=True):
            state = automaton.read(state, torch.tensor(subword))
            depth = automaton.depths[state]
            here = depths == depth
            if depth == 0:  # the space before a word may be a piece of its own
                here &= spaced
                only_space[own] = here
            own_units += (here & (depth > 0)) | (depths > depth)
            own_proposals[here] = following
        own_units[automaton.found_at_end[own]] = len(subwords)
        own_proposals[own_units == len(subwords)] = -1
    return units, only_space, proposals


def _tails(phrase: Spelling, vocabulary: Vocabulary) -> list[int]:
    """The longest piece that goes on after so many symbols of a phrase, from one of them on."""
    symbols = with_edges(phrase)
    said = accumulate(symbol != EDGE for symbol in symbols)
    return [vocabulary.longest(phrase[count:]) for count in said]
