"""Progress of each hypothesis through the phrases that it must contain.

``PhraseAutomaton`` reads the progress from the text, so that a phrase counts however the model cuts
it. The proposed next subword is that of the tokenizer's segmentation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer.decoding.constraints.phrase_automaton import EDGE, PhraseAutomaton, with_edges
from transformer.decoding.constraints.vocabulary_spelling import Spelling, Vocabulary


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
        units, found = self.units[self.states], self.automaton.found[self.states]
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
        found, at_end = self.automaton.found, self.automaton.found_at_end
        return (at_end & ~found)[self.states].any(-1)


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
        own = slice(start - bounds[0], end - bounds[0])
        depths, spaced = automaton.depths[own], automaton.spaced[own]
        own_units, own_proposals = units[own], proposals[own]
        # If the model has cut the phrase differently, the longest subword that continues it.
        phrase = spellings[0]
        counts = accumulate(symbol != EDGE for symbol in with_edges(phrase))
        tails = [subwords[0], *(vocabulary.longest(phrase[count:]) for count in counts)]
        own_proposals[:] = torch.tensor(tails)[depths.clamp(max=len(tails) - 1)]
        state = torch.tensor(start)
        for subword, following in zip(subwords, [*subwords[1:], -1], strict=True):
            state = automaton.read(state, torch.tensor(subword))
            depth = automaton.depths[state]
            here = depths == depth
            if depth == 0:  # the space before a word may be a subword of its own
                here &= spaced
                only_space[own] = here
            own_units += (here & (depth > 0)) | (depths > depth)
            own_proposals[here] = following
        own_units[automaton.found_at_end[own]] = len(subwords)
        own_proposals[own_units == len(subwords)] = -1
    return units, only_space, proposals
