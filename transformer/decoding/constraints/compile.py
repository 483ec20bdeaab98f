"""Compiles constraints for the search of a batch; enforces prefixes and forbidden phrases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer.common.errors import InputError
from transformer.data.text.phrases import OTHER, SPACE, is_unspaced, one_line
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.dynamic_beam_allocation import Cut, MustPhrases, beam_width
from transformer.decoding.constraints.phrase_automaton import PhraseAutomaton, Vocabulary, spell
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.search import LogProbabilities, StepFunction
from transformer.settings.tokenizer import EOS, UNK

# Term lists are often the same for all sentences.
_CACHED_AUTOMATA = 8


@dataclass(frozen=True)
class OpenWords:
    """The last words of prefixes. The search spells them in any subwords, and may go on with them:
    the subwords that the tokenizer cuts from "Hun" seldom begin "Hund"."""

    after: Int[Tensor, "batch spelled vocab"]
    """How many subwords are still needed after each, by the bytes that are spelled before it
    (``Vocabulary.spelling_out``); 0 where the word is spelled."""
    counts: Int[Tensor, " batch"]
    """The subwords that the tokenizer has for the word; 0 without one."""
    ends: Int[Tensor, " batch"]
    """The bytes of the word."""
    lengths: Int[Tensor, " vocab"]
    """The bytes of each subword."""

    @classmethod
    def compile(
        cls, words: Sequence[Sequence[int]], vocabulary: Vocabulary, device: torch.device
    ) -> "OpenWords":
        """Of the words of a batch, in the subwords of the tokenizer; without a word, none."""
        texts = [bytes(byte for byte, _ in vocabulary.join(word)) for word in words]
        # The space that a last subword may spell after it would end the word.
        texts = [text.rstrip(b" ") for text in texts]
        size = len(vocabulary.lengths)
        after = torch.zeros(len(texts), max(map(len, texts)) + 1, size, dtype=torch.int16)
        for rows, text in zip(after, texts, strict=True):
            rows[: len(text)] = torch.from_numpy(vocabulary.spelling_out(text))
        return cls(
            after=after.to(device),
            counts=torch.tensor(list(map(len, words)), device=device),
            ends=torch.tensor(list(map(len, texts)), device=device),
            lengths=torch.from_numpy(vocabulary.lengths).to(device),
        )

    def kept(self, sentences: Int[Tensor, " kept"]) -> "OpenWords":
        after, counts, ends = (part[sentences] for part in (self.after, self.counts, self.ends))
        return replace(self, after=after, counts=counts, ends=ends)


@dataclass(frozen=True)
class CompiledConstraints:
    """The constraints of the sentences of one batch."""

    prefixes: Int[Tensor, "batch forced"]
    """Subwords of the prefix before its open word, padded with -1."""
    after_prefix: Bool[Tensor, "batch vocab"] | None
    """Subwords that must not follow the prefix; None if all subwords may."""
    never: tuple[PhraseAutomaton, Int[Tensor, " batch"]] | None
    """Finds the forbidden phrases; and the start state of each sentence. None without any."""
    must: MustPhrases | None
    open_words: OpenWords | None = None
    """None if each prefix is forced to its end."""

    def step(self, step: StepFunction, limits: Int[Tensor, " batch"], beam: int) -> StepFunction:
        """The step with prefixes and forbidden phrases enforced."""
        if not self.prefixes.numel() and self.never is None and self.open_words is None:
            return step
        return ConstrainedStep(step, self, limits, beam)

    def limits(self, limits: Int[Tensor, " batch"], max_length: int) -> Int[Tensor, " batch"]:
        """Limits that count the subwords after the prefix, up to ``max_length`` in all."""
        limits = limits + (self.prefixes >= 0).sum(1).to(limits.device)
        if self.open_words is not None:
            limits = limits + self.open_words.counts
        return limits.clamp(max=max_length)


class ConstrainedStep:
    """Wraps a ``StepFunction``: forbidden tokens get ``-inf``."""

    def __init__(
        self,
        step: StepFunction,
        constraints: CompiledConstraints,
        limits: Int[Tensor, " batch"],
        beam: int,
    ) -> None:
        self.step = step
        self.prefixes = constraints.prefixes
        self.lengths = (self.prefixes >= 0).sum(1)
        self.limits = limits
        self.position = 0
        self.after_prefix = constraints.after_prefix
        self.open_words = constraints.open_words
        # Bytes of the open word, in each hypothesis.
        self.spelled = self.lengths.new_zeros(len(self.lengths), beam)
        self.automaton: PhraseAutomaton | None = None
        if constraints.never is not None:
            self.automaton, starts = constraints.never
            self.states = starts[:, None].expand(-1, beam)
            self.receive(self._limits_and_states().tolist())

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        log_probabilities = self.step(tokens)
        in_prefix = self._force(log_probabilities)[..., None]
        words = self.open_words
        # Each subword spells a byte at least: by then, all words are at their end.
        if words is not None and self.position <= self.prefixes.size(1) + words.after.size(1):
            in_prefix = in_prefix | self._spell_out(words, log_probabilities, tokens)
        if self.automaton is not None:
            log_probabilities.masked_fill_(self.banned & ~in_prefix, -math.inf)
        if self.after_prefix is not None and self.position <= self.prefixes.size(1):
            here = (self.lengths == self.position)[:, None]
            log_probabilities.masked_fill_((here & self.after_prefix)[:, None], -math.inf)
        self.position += 1
        return log_probabilities

    def _force(self, log_probabilities: LogProbabilities) -> Bool[Tensor, "batch 1"]:
        """Allow only the next subword of the prefix; return which sentences have one."""
        if self.position >= self.prefixes.size(1):
            return torch.zeros_like(self.lengths[:, None], dtype=torch.bool)
        subwords = self.prefixes[:, self.position, None]
        forced = subwords >= 0
        # batch 1 -> batch beam 1
        index = subwords.clamp(min=0)[..., None].expand(-1, log_probabilities.size(1), -1)
        kept = log_probabilities.gather(2, index)
        # No search may choose a tag; a given tag adds nothing to the score.
        kept = kept.masked_fill(kept == -math.inf, 0.0)
        log_probabilities.masked_fill_(forced[..., None], -math.inf).scatter_(2, index, kept)
        return forced

    def _spell_out(
        self,
        words: OpenWords,
        log_probabilities: LogProbabilities,
        tokens: Int[Tensor, "batch beam"],
    ) -> Bool[Tensor, "batch beam vocab"]:
        """Allow only what goes on with the open word, as long as the limit has room for the rest;
        return which subwords are parts of the word."""
        begun = self.position > self.lengths[:, None]
        spelled = (self.spelled + words.lengths[tokens]).clamp(max=words.after.size(1) - 1)
        self.spelled = torch.where(begun, spelled, 0)
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        room = (self.limits - self.position - 1)[:, None, None]
        forced = (self.position < self.lengths)[:, None, None]
        after = words.after[rows, self.spelled]
        left = (words.ends[:, None] - self.spelled)[..., None]
        log_probabilities.masked_fill_((after > room.clamp(min=0)) & ~forced, -math.inf)
        return (words.lengths <= left) & (words.lengths > 0) & ~forced

    def look_ahead(self, tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch numbers"]:
        """See ``LookingAhead``: limit and states after these tokens, if phrases are forbidden."""
        if self.automaton is None:
            return tokens[:, :0]
        self.states = self.automaton.read(self.states, tokens)
        return self._limits_and_states()

    def _limits_and_states(self) -> Int[Tensor, "batch numbers"]:
        return torch.cat((self.limits[:, None], self.states), dim=1)

    def receive(self, numbers: list[list[int]]) -> None:
        """Ban tokens that would complete a phrase in these states."""
        automaton = self.automaton
        if automaton is None:
            return
        states = [node_states for _, *node_states in numbers]
        # A phrase in the prefix cannot be avoided: it bans nothing, or nothing could follow it.
        self.banned = automaton.completing(states)
        # After the last subword the search forces the end.
        if any(limit == self.position + 1 for limit, *_ in numbers):
            last = self.limits == self.position + 1
            at_end = automaton.completing(states, at_end=True)
            self.banned |= last[:, None, None] & at_end

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        self.step.reorder(beams)
        if self.open_words is not None:
            self.spelled = self.spelled.gather(1, beams)
        if self.automaton is not None:
            self.states = self.states.gather(1, beams)

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        self.step.keep(sentences)
        self.prefixes = self.prefixes[sentences]
        self.lengths = self.lengths[sentences]
        self.limits = self.limits[sentences]
        self.spelled = self.spelled[sentences]
        if self.open_words is not None:
            self.open_words = self.open_words.kept(sentences)
        if self.after_prefix is not None:
            self.after_prefix = self.after_prefix[sentences]
        if self.automaton is not None:
            self.states = self.states[sentences]
            self.banned = self.banned[sentences]


class ConstraintCompiler:
    """Compiles constraints for the target vocabulary of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._automaton = lru_cache(_CACHED_AUTOMATA)(self._build)

    def compile(
        self,
        constraints: Sequence[Constraints | None],
        max_length: int,
        device: torch.device,
        target_tags: Sequence[Sequence[int]] = (),
    ) -> CompiledConstraints:
        """Compile the constraints of a batch.

        The forced subwords of a sentence are its ``target_tags``, then its prefix, but for an open
        word at its end. All of them are forced if ``max_length`` cuts them.
        """
        requested = [constraint or Constraints() for constraint in constraints]
        for constraint in requested:
            for text in (constraint.prefix, *constraint.must):
                if UNK in self.tokenizer.encode_target([one_line(text)])[0]:
                    raise InputError(
                        f"{text!r} has tokens not in the target vocabulary; leave it out"
                    )
        forced, words = [], []
        for tags, constraint in zip(target_tags or [()] * len(requested), requested, strict=True):
            prefix = [*tags, *constraint.prefix_subwords(self.tokenizer)]
            end = len(prefix)
            if not constraint.closes_word and end <= max_length:
                end -= self._open_count(constraint)
            forced.append(torch.tensor(prefix[:end][:max_length], dtype=torch.long))
            words.append(prefix[end:])
        closed = torch.tensor([self._needs_space(constraint) for constraint in requested])
        must = [[self._cut(phrase) for phrase in constraint.must] for constraint in requested]
        return CompiledConstraints(
            prefixes=pad_sequence(forced, batch_first=True, padding_value=-1).to(device),
            after_prefix=(closed[:, None] & self._unspaced).to(device) if closed.any() else None,
            never=self._never(requested, device),
            must=MustPhrases.compile(must, self.vocabulary, device) if any(must) else None,
            open_words=OpenWords.compile(words, self.vocabulary, device) if any(words) else None,
        )

    def width(self, must: Sequence[str], beam: int) -> int:
        return beam_width(beam, sum(len(self._cut(phrase)[0]) for phrase in must))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.from_tokenizer(self.tokenizer)

    @cached_property
    def _unspaced(self) -> Bool[Tensor, " vocab"]:
        """Subwords that do not begin with a space, except the end of the sentence."""
        unspaced = torch.from_numpy(self.vocabulary.kinds[:, 0] != SPACE)
        unspaced[EOS] = False
        return unspaced

    @cached_property
    def _is_segmented(self) -> bool:
        """Whether the text of the vocabulary has spaces between words of scripts without spaces.

        Then many subwords of several such characters begin with a space: at least 0.64 of them in
        the Tanaka corpus as it is segmented, at most 0.14 in the same text without its spaces.
        """
        subwords = self.tokenizer.subwords(range(self.tokenizer.target_vocab_size))
        bare = [subword.removeprefix(WORD_START) for subword in subwords]
        begins = [
            text != subword
            for text, subword in zip(bare, subwords, strict=True)
            if len(text) > 1 and is_unspaced(text[0])
        ]
        return 3 * sum(begins) > len(begins)

    def _needs_space(self, constraint: Constraints) -> bool:
        """Whether a space must follow the prefix, which its last subword may spell itself."""
        if not constraint.closes_word:
            return False
        subwords = constraint.prefix_subwords(self.tokenizer)
        last = self.vocabulary.spellings[subwords[-1]] if subwords else ()
        return not last or last[-1][1] != SPACE

    def _open_count(self, constraint: Constraints) -> int:
        """The subwords of the last word of a prefix. Punctuation is a word, and so is each subword
        of a script without spaces."""
        subwords = constraint.prefix_subwords(self.tokenizer)
        begins = np.isin(self.vocabulary.kinds[subwords, 0], (SPACE, OTHER))
        return len(subwords) - int(begins.nonzero()[0].max(initial=0))

    def _never(
        self, constraints: Sequence[Constraints], device: torch.device
    ) -> tuple[PhraseAutomaton, Int[Tensor, " batch"]] | None:
        # The first set is empty.
        sets = tuple(dict.fromkeys([(), *(constraint.never for constraint in constraints)]))
        if len(sets) == 1:
            return None
        automaton = self._automaton(sets, device)
        indices = [sets.index(constraint.never) for constraint in constraints]
        return automaton, automaton.starts[torch.tensor(indices, device=device)]

    def _build(self, sets: tuple[tuple[str, ...], ...], device: torch.device) -> PhraseAutomaton:
        spelled = [
            [spelling for phrase in phrases for spelling in self._cut(phrase)[1]]
            for phrases in sets
        ]
        return PhraseAutomaton(spelled, self.vocabulary).to(device)

    def _cut(self, phrase: str) -> Cut:
        """Subwords of a phrase within a sentence, and its spellings: by characters and by subwords.

        The two differ if the first byte of a character is ambiguous about its kind.
        """
        phrase = one_line(phrase)
        [subwords] = self.tokenizer.encode_target([phrase])
        spelling = self.vocabulary.join(subwords)
        if spelling and spelling[0][1] == SPACE:
            spelling = spelling[1:]
        if is_unspaced(phrase[0]) and phrase[0].isalnum() and not self._is_segmented:
            # A script without spaces: the subwords without the space before them.
            [first] = self.tokenizer.subwords(subwords[:1])
            bare = self.vocabulary.numbers.get(first.removeprefix(WORD_START).encode())
            if first == WORD_START:
                subwords = subwords[1:]
            elif bare is not None:
                subwords = [bare, *subwords[1:]]
        return subwords, sorted({spell(phrase), spelling})
