"""Translations of sentences and texts, and how a batch of sentences is translated."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.text.word_alignment import Link, subword_words
from transformer.data.tokenization.tags import with_tags
from transformer.decoding.alignment import Aligner
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.forced_decoding import score_pairs
from transformer.decoding.translator import Translation, Translator
from transformer.serving.languages import Direction
from transformer.serving.sentences import Part, Splitting

Constrain = Callable[[str], Constraints | None]


@dataclass(frozen=True)
class Options:
    """How a request is translated, and what its answer has besides.

    ``near_best`` is the threshold of links (``Aligner``). Sentences share batches whatever
    ``splitting`` and ``constrain`` are.
    """

    direction: Direction
    alternatives: int = 0
    links: bool = False
    near_best: float | None = None
    confidence: bool = False
    attention: bool = False
    splitting: Splitting = field(default="sentences", compare=False)
    constrain: Constrain | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Sentence:
    """A source, and the constraints of its translation."""

    text: str
    constraints: Constraints | None = None


class Attention(NamedTuple):
    """The attention from which word links are read (``aligning_attention``)."""

    source_tokens: tuple[str, ...]
    tokens: tuple[str, ...]
    weights: Float[Tensor, "target source"]


@dataclass(frozen=True)
class SentenceTranslation:
    """The translation of one sentence; ``links`` are pairs of (source, target) words from 0.

    A confidence is the geometric mean of the probabilities of all subwords and the end; that of a
    word is of its subwords.
    """

    source: str
    text: str
    alternatives: tuple[str, ...] = ()
    source_tokens: int = 0
    target_tokens: int = 0
    links: tuple[Link, ...] | None = None
    confidence: float | None = None
    word_confidence: tuple[float, ...] | None = None
    attention: Attention | None = field(default=None, compare=False)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class TextTranslation:
    """The translation of a text: of each of its sentences, with the blanks of the source."""

    parts: tuple[tuple[Part, SentenceTranslation], ...]

    @property
    def text(self) -> str:
        return "".join(part.blanks + found.text for part, found in self.parts)

    def alternatives(self, number: int) -> list[str]:
        """Up to so many other translations; the n-th has the n-th alternative of each sentence."""

        def text(rank: int) -> str:
            chosen = ((p, f.alternatives[rank : rank + 1] or (f.text,)) for p, f in self.parts)
            return "".join(part.blanks + one for part, (one,) in chosen)

        distinct = dict.fromkeys(map(text, range(number)))
        return [one for one in distinct if one not in ("", self.text)]

    @property
    def flags(self) -> list[str]:
        """The failures of its sentences, each once."""
        return list(dict.fromkeys(flag for _, found in self.parts for flag in found.flags))

    @property
    def sentences(self) -> list[SentenceTranslation]:
        """The sentences that are not empty, with the source as the client wrote it."""
        return [replace(found, source=part.sentence) for part, found in self.parts if found.source]


def can_link(direction: Direction, sentence: str) -> bool:
    """Whether the model gives links, and the sentence is not too long for them."""
    limit = direction.translator.max_subwords
    return has_weights(direction.translator) and direction.length(sentence) <= limit


def has_weights(translator: Translator) -> bool:
    """False for an export for CTranslate2 alone."""
    return translator.device.type != "meta"


def translate_batch(options: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
    """Translate sentences together."""
    direction = options.direction
    more = options.alternatives, options.links, options.confidence, options.attention
    if any(more) and not has_weights(direction.translator):
        raise InputError(
            "an export for CTranslate2 alone gives no alternatives, alignment, confidence or "
            "attention; start the server with its run"
        )
    if options.alternatives:
        direction = direction.wider(options.alternatives + 1)
    translator = direction.translator
    alignment: Aligner | bool = options.links
    if options.links and options.near_best is not None:
        alignment = replace(translator.aligner, near_best=options.near_best)
    tagged = [with_tags(one.text, direction.tags) for one in sentences]
    constraints = [one.constraints for one in sentences]
    found = translator.translate(
        tagged, constraints, attention=options.attention, alignment=alignment
    )
    if direction.flagging is not None:
        found = direction.flagging(tagged, found, constraints)
    results = [_result(one, translation) for one, translation in zip(sentences, found, strict=True)]
    return _with_confidence(translator, tagged, results) if options.confidence else results


def _result(sentence: Sentence, found: Translation) -> SentenceTranslation:
    alternatives = dict.fromkeys(candidate.text for candidate in found.nbest[1:])
    seen = found.attention
    attention = seen if seen is None else Attention(found.source_tokens, found.tokens, seen.cpu())
    return SentenceTranslation(
        sentence.text,
        found.text,
        tuple(text for text in alternatives if text not in ("", found.text)),
        len(found.source_tokens),
        len(found.tokens),
        None if found.alignment is None else tuple(sorted(found.alignment)),
        attention=attention,
        flags=found.flags or (),
    )


def _with_confidence(
    translator: Translator, sources: Sequence[str], results: Sequence[SentenceTranslation]
) -> list[SentenceTranslation]:
    pairs = [(source, one.text) for source, one in zip(sources, results, strict=True)]
    scores = score_pairs(
        translator.members[0], translator.tokenizer, pairs, batch_tokens=translator.batch_tokens
    )
    confident = []
    for one, scored in zip(results, scores, strict=True):
        logs = scored.token_log_probabilities
        of_words: dict[int, list[float]] = {}
        for word, log in zip(subword_words(scored.tokens[:-1]), logs, strict=False):
            of_words.setdefault(word, []).append(log)
        words = tuple(_mean_probability(of_words[word]) for word in sorted(of_words) if word >= 0)
        confident.append(replace(one, confidence=_mean_probability(logs), word_confidence=words))
    return confident


def _mean_probability(logs: Sequence[float]) -> float:
    return math.exp(math.fsum(logs) / len(logs))
