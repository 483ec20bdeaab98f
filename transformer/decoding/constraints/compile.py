"""From constraints in text to what a search of a batch obeys: pieces, automata and limits.

It knows the tokenizer, and neither the model nor how a search chooses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.data.text.phrases import OTHER, SPACE, WORD, char_kind, one_line
from transformer.data.tokenization.subword_regularization import WORD_START
from transformer.data.tokenization.tokenizer import EOS, Tokenizer
from transformer.decoding.constraints.masking_step import ConstrainedStep
from transformer.decoding.constraints.phrase_automaton import PhraseAutomaton
from transformer.decoding.constraints.phrase_progress import Cut, MustPhrases, beam_width
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.constraints.vocabulary_spelling import Spelling, Vocabulary, spell
from transformer.decoding.search.interface import StepFunction

# Term lists are mostly the same for all sentences: so many sets of them are kept compiled.
_KEPT = 8


@dataclass(frozen=True)
class CompiledConstraints:
    """What the sentences of one batch are asked for, or some of them.

    Attributes:
        prefixes: Pieces that come first, filled up with -1.
        apart: Pieces that may not follow the prefix; None where all may.
        never: Finds what never is allowed; and the state each sentence starts in.
        must: What must occur; None where nothing must.
        continues_word: Pieces that let the word before them go on.
    """

    prefixes: Int[Tensor, "batch forced"]
    apart: Bool[Tensor, "batch vocab"] | None
    never: tuple[PhraseAutomaton, Int[Tensor, " batch"]] | None
    must: MustPhrases | None
    continues_word: Bool[Tensor, " vocab"]

    def step(self, step: StepFunction, limits: Int[Tensor, " batch"], beam: int) -> StepFunction:
        """The same step, after which nothing follows but what is allowed within these limits."""
        if not self.prefixes.numel() and self.never is None:
            return step
        if self.never is None:
            return ConstrainedStep(step, self.prefixes, limits, self.apart)
        automaton, states = self.never
        never = (automaton, states[:, None].expand(-1, beam))
        return ConstrainedStep(step, self.prefixes, limits, self.apart, never)

    def width(self, beam: int) -> int:
        """Hypotheses that are followed at once, for each sentence."""
        return beam if self.must is None else int(self.must.widths(beam).max())

    def limits(self, limits: Int[Tensor, " batch"], most: int) -> Int[Tensor, " batch"]:
        """Limits that count the pieces after the prefix, as far as ``most`` has room."""
        return (limits + (self.prefixes >= 0).sum(1).to(limits.device)).clamp(max=most)


class ConstraintCompiler:
    """Compiles constraints for the target vocabulary of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look at the vocabulary once something is asked for."""
        self.tokenizer = tokenizer
        self._automaton = lru_cache(_KEPT)(self._never)

    def compile(
        self, asked: Sequence[Constraints | None], most: int, device: torch.device
    ) -> CompiledConstraints | None:
        """Compile those of a batch; None where nothing is asked for.

        Args:
            asked: Of each sentence.
            most: Pieces that the model has room for; a longer prefix is cut, and is not met.
            device: Where the search is.
        """
        if not any(asked):
            return None
        every = [constraints or Constraints() for constraints in asked]
        subwords = [
            row[:most]
            for row in self.tokenizer.encode_target([one_line(one.prefix) for one in every])
        ]
        prefixes = torch.full((len(every), max(map(len, subwords))), -1)
        for row, forced in zip(prefixes, subwords, strict=True):
            row[: len(forced)] = torch.tensor(forced, dtype=torch.long)
        closed = torch.tensor([one.closes_word for one in every])
        apart = (closed[:, None] & self._not_apart).to(device) if closed.any() else None
        musts = [[self._cut(phrase) for phrase in one.must] for one in every]
        return CompiledConstraints(
            prefixes.to(device),
            apart,
            self._never_of(every, device),
            MustPhrases.of(musts, self.vocabulary, device) if any(musts) else None,
            self._continues_word.to(device),
        )

    def width(self, constraints: Constraints | None, beam: int) -> int:
        """Hypotheses that are followed at once for such a sentence."""
        if constraints is None or not constraints.must:
            return beam
        return beam_width(beam, sum(len(self._cut(phrase)[0]) for phrase in constraints.must))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """How the pieces are spelt."""
        return Vocabulary.of(self.tokenizer)

    @cached_property
    def _not_apart(self) -> Bool[Tensor, " vocab"]:
        """Pieces that do not begin with a space, the end aside."""
        kinds = [spelling[0][1] if spelling else None for spelling in self.vocabulary.spellings]
        glued = torch.tensor([kind != SPACE for kind in kinds])
        glued[EOS] = False
        return glued

    @cached_property
    def _continues_word(self) -> Bool[Tensor, " vocab"]:
        return torch.tensor([s[:1] != () and s[0][1] == WORD for s in self.vocabulary.spellings])

    def _never_of(
        self, asked: Sequence[Constraints], device: torch.device
    ) -> tuple[PhraseAutomaton, Int[Tensor, " batch"]] | None:
        # The first set is empty.
        sets = {(): 0} | {one.never: 0 for one in asked}
        if len(sets) == 1:
            return None
        indices = {phrases: index for index, phrases in enumerate(sets)}
        automaton = self._automaton(tuple(sets), device)
        rows = torch.tensor([indices[one.never] for one in asked], device=device)
        return automaton, automaton.starts[rows]

    def _never(self, sets: tuple[tuple[str, ...], ...], device: torch.device) -> PhraseAutomaton:
        spelt = [[s for phrase in phrases for s in self._cut(phrase)[1]] for phrases in sets]
        return PhraseAutomaton(spelt, self.vocabulary).to(device)

    def _cut(self, phrase: str) -> Cut:
        """Its pieces within a sentence, and how it is spelt: with its own characters and by bytes.

        The two differ where the first byte of a character deceives about its kind.
        """
        phrase = one_line(phrase)
        [subwords] = self.tokenizer.encode_target([phrase])
        spelling = _without_space(self.vocabulary.join(subwords))
        if char_kind(phrase[0]) == OTHER and phrase[0].isalnum():
            subwords = self._within_words(subwords)
        return subwords, sorted({spell(phrase), spelling})

    def _within_words(self, subwords: list[int]) -> list[int]:
        """Of a script without spaces: the same pieces without the space before them."""
        [first] = self.tokenizer.subwords(subwords[:1])
        if first == WORD_START:
            return subwords[1:]
        bare = self._numbers.get(first.removeprefix(WORD_START))
        return subwords if bare is None else [bare, *subwords[1:]]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        subwords = self.tokenizer.subwords(range(self.tokenizer.target_vocab_size))
        return {subword: number for number, subword in enumerate(subwords)}


def _without_space(spelling: Spelling) -> Spelling:
    return spelling[1:] if spelling and spelling[0][1] == SPACE else spelling
