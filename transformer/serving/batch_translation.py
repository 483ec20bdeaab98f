"""Translations of sentences and texts, and how a batch of sentences is translated."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from transformer.common.errors import InputError
from transformer.data.text.phrases import is_unspaced
from transformer.data.text.word_alignment import NO_WORD, Link
from transformer.data.tokenization.tags import with_tags
from transformer.decoding.alignment import Aligner
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.forced_decoding import score_pairs
from transformer.decoding.long_inputs import blank_between
from transformer.decoding.translator import Translation, Translator
from transformer.quality.failures.monitor import as_output
from transformer.serving.languages import Direction
from transformer.serving.sentences import Part, Splitting

Constrain = Callable[[str], Constraints | None]


@dataclass(frozen=True)
class Options:
    """How a request is translated, and what its answer contains besides the text.

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
    mean_log_probability: float = 0.0
    """Of its subwords and the end, in nats."""
    language: str | None = None
    """Of a sound, if the model has tags of languages."""
    no_speech: float | None = None
    """Of a sound of one window: the probability that nobody speaks, if the model gives it."""


TranslatedPart = tuple[Part, SentenceTranslation]


@dataclass(frozen=True)
class TextTranslation:
    """The translation of a text: its sentences, each with the blanks before it in the source."""

    parts: tuple[TranslatedPart, ...]
    before: TranslatedPart | None = None
    """Of a stream: the last part before these that has a translation."""

    @property
    def separators(self) -> Iterator[str]:
        """What stands before each translation: the blanks of the source, or a space.

        The space is for sentences without blanks between them, as in Chinese, whose translations
        are of a script with blanks.
        """
        before = self.before
        for part, sentence in self.parts:
            yield part.blanks or _space_between(before, (part, sentence))
            if sentence.text:
                before = part, sentence

    @property
    def text(self) -> str:
        return "".join(
            blanks + sentence.text
            for blanks, (_, sentence) in zip(self.separators, self.parts, strict=True)
        )

    def alternatives(self, number: int) -> list[str]:
        """Up to so many other translations; the n-th has the n-th alternative of each sentence."""
        texts: dict[str, None] = {}
        for rank in range(number):
            text = ""
            for blanks, (_, sentence) in zip(self.separators, self.parts, strict=True):
                has_rank = rank < len(sentence.alternatives)
                text += blanks + (sentence.alternatives[rank] if has_rank else sentence.text)
            texts[text] = None
        return [text for text in texts if text not in ("", self.text)]

    @property
    def flags(self) -> list[str]:
        """The failures of its sentences, each once."""
        return list(dict.fromkeys(flag for _, sentence in self.parts for flag in sentence.flags))

    @property
    def sentences(self) -> list[SentenceTranslation]:
        """The sentences that are not empty, with the source as the client wrote it."""
        return [
            replace(sentence, source=part.sentence)
            for part, sentence in self.parts
            if sentence.source
        ]


def _space_between(before: TranslatedPart | None, after: TranslatedPart) -> str:
    if before is None or not any(map(str.isalnum, after[1].text)):
        return ""
    is_from_unspaced = any(map(is_unspaced, before[0].sentence + after[0].sentence))
    return blank_between((before[1].text, after[1].text)) if is_from_unspaced else ""


def can_link(direction: Direction, sentence: str) -> bool:
    """Whether the model gives links, and the sentence is not too long for them."""
    limit = direction.translator.max_subwords
    return has_weights(direction.translator) and direction.length(sentence) <= limit


def has_weights(translator: Translator) -> bool:
    """Whether torch has the weights; an export for CTranslate2 alone has none."""
    return translator.device.type != "meta"


def translate_batch(options: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
    """Translate sentences together."""
    direction = options.direction
    extras = (options.alternatives, options.links, options.confidence, options.attention)
    if any(extras) and not has_weights(direction.translator):
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
    tagged = [with_tags(sentence.text, direction.tags) for sentence in sentences]
    constraints = [sentence.constraints for sentence in sentences]
    translations = translator.translate(
        tagged, constraints, attention=options.attention, alignment=alignment
    )
    if direction.flagging is not None:
        translations = direction.flagging(tagged, translations, constraints)
    results = [
        _result(sentence, translation)
        for sentence, translation in zip(sentences, translations, strict=True)
    ]
    return _with_confidence(translator, tagged, results) if options.confidence else results


def _result(sentence: Sentence, translation: Translation) -> SentenceTranslation:
    alternatives = dict.fromkeys(candidate.text for candidate in translation.nbest[1:])
    links = None
    if translation.alignment is not None:
        links = tuple(sorted(translation.alignment))
    attention = None
    if translation.attention is not None:
        weights = translation.attention.cpu()
        attention = Attention(translation.source_tokens, translation.tokens, weights)
    return SentenceTranslation(
        sentence.text,
        translation.text,
        alternatives=tuple(text for text in alternatives if text not in ("", translation.text)),
        source_tokens=len(translation.source_tokens),
        target_tokens=len(translation.tokens),
        links=links,
        attention=attention,
        flags=translation.flags or (),
        mean_log_probability=as_output(translation).log_probability or 0.0,
        language=translation.language,
        no_speech=translation.no_speech[0] if translation.no_speech else None,
    )


def _with_confidence(
    translator: Translator, sources: Sequence[str], results: Sequence[SentenceTranslation]
) -> list[SentenceTranslation]:
    pairs = [(source, result.text) for source, result in zip(sources, results, strict=True)]
    scores = score_pairs(
        translator.members[0], translator.tokenizer, pairs, batch_tokens=translator.batch_tokens
    )
    confident = []
    for result, scored in zip(results, scores, strict=True):
        log_probabilities = scored.token_log_probabilities
        [subwords] = translator.tokenizer.encode_target([result.text])
        words = [NO_WORD] * scored.given
        words += translator.tokenizer.target_words(subwords, result.text)
        by_word: dict[int, list[float]] = {}
        for word, log_probability in zip(words, log_probabilities, strict=False):
            by_word.setdefault(word, []).append(log_probability)
        confident.append(
            replace(
                result,
                confidence=math.exp(scored.mean_log_probability),
                word_confidence=tuple(
                    _mean_probability(by_word[word]) for word in sorted(by_word) if word >= 0
                ),
            )
        )
    return confident


def _mean_probability(log_probabilities: Sequence[float]) -> float:
    """The geometric mean of probabilities."""
    return math.exp(math.fsum(log_probabilities) / len(log_probabilities))
