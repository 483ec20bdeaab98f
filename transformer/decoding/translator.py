"""Raw text to raw text: validation, ``evaluate`` and ``translate`` all translate with it.

A ``Translator`` returns a ``Translation`` of each text, whose n-best list has a ``Candidate`` each.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from statistics import fmean
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.checkpoint.checkpoint import Checkpoint
from transformer.checkpoint.exported import load_model
from transformer.common.errors import InputError, errors_name
from transformer.common.files import given_path
from transformer.common.hub import is_hub_name
from transformer.data.features.read_source import ReadSource
from transformer.data.text.phrases import occurs
from transformer.data.text.word_alignment import NO_WORD, Links, format_links
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner, batched_attention, joined_links
from transformer.decoding.batched_search import (
    ModelSearcher,
    detect_languages,
    hypothesis_texts,
    max_source,
    max_subwords,
)
from transformer.decoding.batching import make_windows
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import LinkedWords
from transformer.decoding.long_inputs import (
    Segment,
    SourceLimits,
    SplitLines,
    blank_between,
    check_fits,
    counting_split_lines,
    file_segments,
    join_parts,
    source_windows,
    split_segments,
)
from transformer.decoding.search.model_step import Model, ensemble_members
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.search.shortlist import with_shortlist_of
from transformer.model.head_masks import HeadName
from transformer.model.layers.quantization import in_precision
from transformer.model.modes import evaluating
from transformer.model.transformer import Transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.model import Precision


@dataclass(frozen=True)
class Candidate:
    """One entry of an n-best list."""

    text: str
    """Detokenized, without a line end."""
    score: float
    """What the search ranks by: the log-probability divided by the length penalty, plus the
    coverage penalty. For ``mbr`` it is the expected utility; a text that is cut into segments has
    their mean."""
    log_probability: float
    """Natural logarithm of the probability of all subwords and the end of the sentence."""
    tokens: tuple[str, ...]
    length: int = field(compare=False)
    """The tokens that the length penalty counts: with the end of each part of a split text, without
    the prompt of a sound."""
    is_unfinished: bool = field(default=False, compare=False)
    """Whether the search was cut at the maximum length, of the text or of a part of it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
        }


class TimedText(NamedTuple):
    """The translation of a part of a sound, in seconds of its file."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Translation:
    """The translation of one text: its best candidate, and the n-best list."""

    text: str
    score: float
    """0 for a blank text."""
    tokens: tuple[str, ...]
    nbest: tuple[Candidate, ...]
    """Up to ``nbest`` candidates, the best first. A candidate of a split text joins those of one
    rank of all parts: the order is that of the parts, and not always that of the scores."""
    source_tokens: tuple[str, ...] = ()
    attention: Float[Tensor, "target source"] | None = field(default=None, compare=False)
    """On request: the weight of each source subword for each target subword
    (``aligning_attention``). A row sums to less than 1: the end of the source has the rest."""
    alignment: Links | None = field(default=None, compare=False)
    """On request: (source word, target word) links that are read from the attention. They are
    indices from 0; spaces separate words."""
    unmet: tuple[str, ...] | None = None
    """The violated constraints, such as ``must: Haus``; None if the text had no constraints."""
    parts: int = 1
    """Of a source that was split because it is too long for the model (`SourceLimits`)."""
    flags: tuple[str, ...] | None = None
    """On request, the failures of the text (``transformer/quality/failures/flags.py``)."""
    segments: tuple[TimedText, ...] | None = None
    """Of a sound: its windows, one after another, or the pieces between the times of the text."""
    language: str | None = None
    """Of a sound, given or detected, if the model has tags of languages."""
    no_speech: tuple[float | None, ...] = field(default=(), compare=False)
    """Of each window of a sound: the probability that nobody speaks, if the model gives it."""

    @property
    def is_unfinished(self) -> bool:
        """See ``Candidate.is_unfinished``."""
        return self.nbest[0].is_unfinished

    def checked(self, constraints: Constraints | None) -> "Translation":
        """A copy with ``unmet``; without constraints, this translation itself."""
        return replace(self, unmet=constraints.unmet(self.text)) if constraints else self

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``parts`` only of a split source, ``language`` and ``segments`` of a
        sound, the rest on request."""
        values = {
            "text": self.text,
            "score": self.score,
            "tokens": self.tokens,
            "source_tokens": self.source_tokens,
            "nbest": [candidate.to_json() for candidate in self.nbest],
        }
        requested = {
            "attention": None if self.attention is None else self.attention.tolist(),
            "alignment": None if self.alignment is None else format_links(self.alignment),
            "unmet": self.unmet,
            "parts": self.parts if self.parts > 1 else None,
            "flags": self.flags,
            "language": self.language,
            "segments": self.segments
            and [
                {"start": round(start, 3), "end": round(end, 3), "text": text}
                for start, end, text in self.segments
            ],
        }
        return values | {name: value for name, value in requested.items() if value is not None}

    def to_line(self) -> str:
        """The text; with an alignment ``text ||| 0-0 1-2``, the format of Marian."""
        if self.alignment is None:
            return self.text
        return f"{self.text} ||| {format_links(self.alignment)}"


_FILES_BYTES = 1 << 24
"""Vectors that are in memory together: about eight minutes of sound."""


def _size_of_file(request: Request) -> int:
    assert isinstance(request.text, ReadSource)
    return int(request.text.vectors.nbytes)


BLANK = Translation("", 0.0, (), (Candidate("", 0.0, 0.0, (), 1),))
"""The translation of a blank text: no model runs for it."""


def length_counts(translations: Iterable[Translation]) -> tuple[int, int]:
    """The number of translations that reached their maximum length, and of all with a source."""
    unfinished = [t.is_unfinished for t in translations if t.source_tokens]
    return sum(unfinished), len(unfinished)


class Trained(NamedTuple):
    """The settings of a checkpoint for translation."""

    tokenizer: Tokenizer
    search: SearchConfig
    aligner: Aligner
    limits: SourceLimits


def trained_with(checkpoint: Checkpoint) -> Trained:
    """Read the settings: the search of the validation, or the best search of ``tune``."""
    model = checkpoint.model.config
    config = checkpoint.config
    with errors_name(checkpoint.path):
        tokenizer = Tokenizer.from_state(checkpoint.portable.tokenizer)
        tokenizer.check_vocabulary_sizes(model.source_vocab_size, model.target_vocab_size)
        aligner = Aligner.trained(config.loss, model)
        limits = SourceLimits.trained(config, checkpoint.portable.longest_source)
        return Trained(tokenizer, config.decoding, aligner, limits)


Searcher = Callable[[Sequence[Segment]], list[list[Hypothesis]]]
"""Finds up to ``nbest`` hypotheses per segment, the best first."""
Engine = Callable[["Translator"], Searcher]
"""Makes the searcher of a translator; InputError for a search that the program cannot do."""


def torch_engine(translator: "Translator") -> Searcher:
    """Our search, which has all settings."""
    return ModelSearcher(
        translator.ensemble,
        translator.tokenizer,
        translator.search,
        translator.batch_tokens,
        translator.coverage_head,
        translator.timestamps,
    )


@dataclass(frozen=True, eq=False)
class Translator:
    """A model, its tokenizer and a search.

    ``dataclasses.replace`` makes another translator of the same weights. Each call uses the present
    weights and the device of the model. Raises InputError if the model or the engine cannot do
    what a field asks for.
    """

    ensemble: Model
    """The model, or several whose distributions are averaged."""
    tokenizer: Tokenizer
    search: SearchConfig
    batch_tokens: int = 4096
    """Padded source tokens of a batch, counted once per hypothesis."""
    aligner: Aligner = field(default_factory=Aligner)
    coverage_head: HeadName | None = None
    """The head that the coverage penalty reads."""
    limits: SourceLimits = field(default_factory=SourceLimits)
    """Which sources are split; by default those that exceed the positions of the model."""
    timestamps: bool = False
    """Whether a model of speech writes times, as Whisper's can; they cut ``segments``."""
    engine: Engine = torch_engine
    """Our search, or another program."""
    searcher: Searcher = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.aligner.check(self.model.config)
        if self.timestamps and not self.tokenizer.times:
            raise InputError(
                "timestamps=true: the model writes no times, as Whisper's do; leave it out"
            )
        longest = max_source(self.ensemble)
        limits = replace(self.limits, longest=longest, usual=min(longest, self.limits.usual))
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "searcher", self.engine(self))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        search: SearchConfig | None = None,
        batch_tokens: int = 4096,
        device: torch.device | str = "cpu",
        aligner: Aligner | None = None,
        precision: Precision = "float32",
    ) -> "Translator":
        """Load a checkpoint file, the best of a run directory, or an export as safetensors.

        By default, ``search`` and ``aligner`` come from the run. A model that is stored in bfloat16
        is loaded in the memory of its weights by ``precision="bfloat16"``.
        """
        name = os.fspath(path)
        if is_hub_name(name):
            raise InputError(
                f"{name} is no file or folder; a model of the Hub is loaded by "
                f"transformer.load_translator(TranslatorConfig({name!r}))"
            )
        checkpoint = load_model(given_path(name))
        trained = trained_with(checkpoint)
        model = in_precision(checkpoint.model, precision, device, untie=False)
        return cls(
            model.to(device),
            trained.tokenizer,
            with_shortlist_of(search or trained.search, checkpoint.path),
            batch_tokens,
            aligner=aligner or trained.aligner,
            coverage_head=trained.aligner.head,
            limits=trained.limits,
        )

    @property
    def members(self) -> list[Transformer]:
        """The models of the ensemble, or the one model."""
        return ensemble_members(self.ensemble)

    @property
    def model(self) -> Transformer:
        """The model, or the first of the ensemble."""
        return self.members[0]

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    @property
    def max_subwords(self) -> int:
        """Maximal subwords of a source in one part, with its tags."""
        return self.limits.longest

    def translate(
        self,
        texts: Sequence[str],
        constraints: Sequence[Constraints | None] | None = None,
        *,
        attention: bool = False,
        alignment: Aligner | bool = False,
        split_lines: SplitLines | None = None,
    ) -> list[Translation]:
        """Translate texts, in their order; a blank text has a blank translation.

        A text that is longer than the model knows is split (``SourceLimits``); ``split_lines``
        counts these in place of a warning. A ``TaggedText`` has its own tags, other texts have the
        tokenizer's. Attention and word links are those of the best candidate; ``alignment=True``
        takes the translator's aligner.

        If the tokenizer reads files, a text is the path of a file, or a `ReadSource`; a long sound
        is cut into windows. A model such as Whisper detects the language of a sound without tags,
        by its first window. Raises InputError, which names it, for a file that cannot be read.
        """
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts, not one string; give [text]")
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"translate takes a list of texts; {text!r} is no string")
        if constraints is None:
            constraints = [None] * len(texts)
        if self.tokenizer.reads_files and not all(isinstance(text, ReadSource) for text in texts):
            lines = map(Request, texts, constraints)
            windows = self.stream_windows(lines, attention=attention, alignment=alignment)
            return list(chain.from_iterable(translations for _, translations in windows))
        of_texts = [
            constraint.on_source(text) if constraint else None
            for constraint, text in zip(constraints, texts, strict=True)
        ]
        aligner = alignment if isinstance(alignment, Aligner) else self.aligner
        aligner.check(self.model.config)
        linking = aligner if alignment else None
        with counting_split_lines(self.limits, split_lines) as counted, evaluating(self.ensemble):
            segmented = self._split(texts, of_texts)
            if not self.tokenizer.reads_files:  # sound of any length is usual
                counted.count(map(len, segmented))
            segmented = [
                self._with_phrases(segments, constraint.must)
                if constraint and len(segments) > 1
                else segments
                for segments, constraint in zip(segmented, of_texts, strict=True)
            ]
            searched = self._without_terms(list(chain.from_iterable(segmented)))
            beams = self.searcher(searched)
            maps = [torch.empty(0, 0)] * len(searched)
            if attention or alignment:
                # The search keeps its fast kernel: the attention is computed again.
                pairs = [
                    (segment.subwords, beam[0].tokens)
                    for segment, beam in zip(searched, beams, strict=True)
                ]
                maps = batched_attention(self.model, pairs, aligner.head, self.batch_tokens)
            parts = zip(beams, maps, strict=True)
            translations = [
                self._join(text, segments, list(islice(parts, len(segments))), attention, linking)
                for text, segments in zip(texts, segmented, strict=True)
            ]
        return [
            translation.checked(constraint)
            for translation, constraint in zip(translations, of_texts, strict=True)
        ]

    def windows(self, texts: Sequence[str]) -> list[range]:
        """The indices of the texts that are translated together: each text is translated alone."""
        return [range(index, index + 1) for index in range(len(texts))]

    def translate_windows(
        self, texts: Sequence[str], windows: Sequence[range]
    ) -> list[list[Translation]]:
        """Return the translations of the texts of each of these `windows`."""
        translations = iter(
            self.translate([texts[index] for index in chain.from_iterable(windows)])
        )
        return [list(islice(translations, len(window))) for window in windows]

    def translate_stream(
        self,
        lines: Iterable[str | Request],
        *,
        ready: Callable[[], bool] | None = None,
        attention: bool = False,
        alignment: bool = False,
        name: Callable[[int], str] = lambda index: f"line {index + 1}",
    ) -> Iterator[Translation]:
        """Translate a stream of lines; memory holds one window of lines.

        If reading fails, or the next line is not ``ready`` without waiting, the lines read so far
        are translated first. ``name`` makes the name of a line from its index, for warnings.
        """
        windows = self.stream_windows(
            lines, ready=ready, attention=attention, alignment=alignment, name=name
        )
        for _, translations in windows:
            yield from translations

    def stream_windows(
        self,
        lines: Iterable[str | Request],
        *,
        ready: Callable[[], bool] | None = None,
        attention: bool = False,
        alignment: Aligner | bool = False,
        name: Callable[[int], str] = lambda index: f"line {index + 1}",
    ) -> Iterator[tuple[list[Request], list[Translation]]]:
        """``translate_stream`` by windows, each with its requests."""
        with counting_split_lines(self.limits, name=name) as split_lines:
            requests: Iterator[Request] = map(Request.from_line, lines)
            windows = make_windows(requests, ready, lambda request: len(request.text))
            if self.tokenizer.reads_files:
                requests = self._read(requests, name)
                windows = make_windows(requests, ready, _size_of_file, _FILES_BYTES)
            for window in windows:
                translations = self.translate(
                    [request.text for request in window],
                    [request.constraints for request in window],
                    attention=attention,
                    alignment=alignment,
                    split_lines=split_lines,
                )
                yield window, translations

    def _read(self, requests: Iterable[Request], name: Callable[[int], str]) -> Iterator[Request]:
        """The requests with the vectors of their files; an InputError names the line."""
        for index, request in enumerate(requests):
            with errors_name(name(index)):
                source = self._opened(request.text)
            yield replace(request, text=source)

    def _opened(self, file: str) -> ReadSource:
        """The vectors of a file; InputError if it is too long, and cannot be cut into windows."""
        source = self.tokenizer.vector_source.opened(file)
        check_fits(source, self.tokenizer, self.limits)
        return source

    def _split(
        self, texts: Sequence[str], constraints: Sequence[Constraints | None]
    ) -> list[list[Segment]]:
        """The segments of each text; a blank text has none."""
        if self.tokenizer.reads_files:
            sources = self._with_languages(list(map(self._opened, texts)))
            target_tags = self.tokenizer.target_tags(sources)
            if self.timestamps:
                # The last symbol is that of a text without times.
                target_tags = [tags[:-1] for tags in target_tags]
            return [
                file_segments(source, constraint, self.tokenizer, self.limits, tags)
                for source, constraint, tags in zip(sources, constraints, target_tags, strict=True)
            ]
        target_tags = self.tokenizer.target_tags(texts)
        encoded = self.tokenizer.encode_source(texts)
        rows = zip(texts, encoded, constraints, target_tags, strict=True)
        return [
            split_segments(
                subwords if text.strip() else [],
                constraint,
                self.tokenizer,
                self.limits,
                tags,
                text,
            )
            for text, subwords, constraint, tags in rows
        ]

    def _with_languages(self, sources: list[ReadSource]) -> list[ReadSource]:
        """Detect the languages of sounds, if the model has tags of them and the sound has none."""
        tokenizer = self.tokenizer
        if not tokenizer.tags.detects_language:
            return sources
        tags = [
            tokenizer.tags.with_languages(source.tags.over(tokenizer.source_tags))
            for source in sources
        ]
        window = tokenizer.vector_source.extractor.window
        first = {
            index: source_windows(source, self.limits, window)[0].vectors
            for index, source in enumerate(sources)
            if tags[index].source is None and len(source.vectors)
        }
        languages = detect_languages(
            self.ensemble,
            list(first.values()),
            tokenizer,
            self.batch_tokens,
            self.searcher.free_memory if isinstance(self.searcher, ModelSearcher) else None,
        )
        for index, language in zip(first, languages, strict=True):
            tags[index] = tokenizer.tags.with_languages(tags[index]._replace(source=language))
        return [source.with_tags(known) for source, known in zip(sources, tags, strict=True)]

    def _with_phrases(self, segments: list[Segment], must: Sequence[str]) -> list[Segment]:
        """Require each phrase of a split text where it is anyway, or where it costs the least."""
        if not must:
            return segments
        free = self.searcher(segments)
        texts = self._best_texts(free)
        phrases: list[list[str]] = [[] for _ in segments]
        for phrase in must:
            costs = [0.0 if occurs(phrase, text) else math.inf for text in texts]
            if 0.0 not in costs:
                forced = self.searcher([segment.requiring([phrase]) for segment in segments])
                costs = [
                    without[0].log_probability - with_phrase[0].log_probability
                    if occurs(phrase, text)
                    else math.inf
                    for without, with_phrase, text in zip(
                        free, forced, self._best_texts(forced), strict=True
                    )
                ]
            phrases[costs.index(min(costs))].append(phrase)
        return [
            segment.requiring(of_segment)
            for segment, of_segment in zip(segments, phrases, strict=True)
        ]

    def _best_texts(self, beams: Sequence[Sequence[Hypothesis]]) -> list[str]:
        return hypothesis_texts([beam[0] for beam in beams], self.tokenizer)

    def _without_terms(self, segments: list[Segment]) -> list[Segment]:
        """Terms become required phrases, and forbidden words of a free translation."""
        terms = {
            index: segment.constraints
            for index, segment in enumerate(segments)
            if segment.constraints and segment.constraints.terms
        }
        if not terms:
            return segments
        model_words: list[tuple[str, ...]] = [()] * len(terms)
        # An export that another program searches has no weights here, and so no attention.
        if self.device.type != "meta":
            free = [
                replace(segments[index], constraints=replace(asked, must=(), terms=()) or None)
                for index, asked in terms.items()
            ]
            pairs = [
                (segment.subwords, beam[0].tokens)
                for segment, beam in zip(free, self.searcher(free), strict=True)
            ]
            maps = batched_attention(self.model, pairs, self.aligner.head, self.batch_tokens)
            model_words = [
                LinkedWords.from_attention(*pair, weights, self.tokenizer).model_words(asked.terms)
                for asked, pair, weights in zip(terms.values(), pairs, maps, strict=True)
            ]
        required = list(segments)
        for (index, asked), words in zip(terms.items(), model_words, strict=True):
            required[index] = replace(segments[index], constraints=asked.with_terms_required(words))
        return required

    def _join(
        self,
        text: str,
        segments: list[Segment],
        parts: list[tuple[list[Hypothesis], Tensor]],
        attention: bool,
        aligner: Aligner | None,
    ) -> Translation:
        """The translation of a text from the n-best lists and attention of its segments."""
        if not segments:
            return replace(BLANK, alignment=frozenset()) if aligner else BLANK
        limits = [self._limit(segment) for segment in segments]
        # Candidate i of the text has candidate i of each segment.
        nbest = tuple(
            self._candidate(hypotheses, limits)
            for hypotheses in zip(*(beam for beam, _ in parts), strict=False)
        )
        source = [self._labels(segment) for segment in segments]
        maps = [weights for _, weights in parts]
        links = None
        if aligner is not None:
            best = [beam[0] for beam, _ in parts]
            texts = hypothesis_texts(best, self.tokenizer)
            targets = [
                self.tokenizer.target_words(hypothesis.tokens, of_part)
                for hypothesis, of_part in zip(best, texts, strict=True)
            ]
            words = self._source_words(segments, text)
            links = joined_links(maps, words, targets, aligner.near_best, blank_between(texts))
        return Translation(
            text=nbest[0].text,
            score=nbest[0].score,
            tokens=nbest[0].tokens,
            nbest=nbest,
            source_tokens=tuple(chain.from_iterable(source)),
            attention=torch.block_diag(*maps) if attention else None,
            alignment=links,
            parts=len(segments),
            segments=self._timed(segments, [beam[0] for beam, _ in parts]),
            language=segments[0].language,
            no_speech=tuple(
                beam[0].no_speech
                for segment, (beam, _) in zip(segments, parts, strict=True)
                if segment.times is not None
            ),
        )

    def _source_words(self, segments: Sequence[Segment], text: str) -> list[list[int]]:
        """The number of the word of each subword of the parts; each begins with the tags."""
        subwords = [segment.subwords for segment in segments]
        tags = [self.tokenizer.leading_tags(of_part) for of_part in subwords]
        untagged = [of_part[count:] for of_part, count in zip(subwords, tags, strict=True)]
        words = iter(self.tokenizer.source_words(list(chain.from_iterable(untagged)), text))
        return [
            [*[NO_WORD] * count, *islice(words, len(of_part))]
            for count, of_part in zip(tags, untagged, strict=True)
        ]

    def _labels(self, segment: Segment) -> list[str]:
        """The source subwords, or the times or places of vectors."""
        if segment.times is None:
            return self.tokenizer.source_subwords(segment.subwords)
        return self.tokenizer.vector_source.labels(segment.subwords, segment.times)

    def _timed(
        self, segments: Sequence[Segment], best: Sequence[Hypothesis]
    ) -> tuple[TimedText, ...] | None:
        timed = []
        for segment, hypothesis in zip(segments, best, strict=True):
            window = segment.times
            if window is None:
                return None
            rows: list[tuple[tuple[float | None, float | None], tuple[int, ...]]]
            rows = [((None, None), hypothesis.tokens)]
            if self.timestamps:
                rows = self.tokenizer.timed_rows(hypothesis.tokens)
            for (start, end), tokens in rows:
                [text] = hypothesis_texts([replace(hypothesis, tokens=tokens)], self.tokenizer)
                # A model may write times after the end of the sound.
                first = min(window.end, window.start + (start or 0.0) * window.speed)
                last = window.end
                if end is not None:
                    last = min(window.end, window.start + end * window.speed)
                timed.append(TimedText(first, last, text))
        return tuple(timed) or None

    def _limit(self, segment: Segment) -> int:
        """Maximal subwords of its translation."""
        limit = self.search.limit(len(segment.subwords)) + len(segment.target_tags)
        if segment.constraints is not None:
            limit += len(segment.constraints.prefix_subwords(self.tokenizer))
        return min(max_subwords(self.ensemble), limit)

    def _candidate(self, hypotheses: Sequence[Hypothesis], limits: Sequence[int]) -> Candidate:
        text = join_parts(hypothesis_texts(hypotheses, self.tokenizer))
        total = sum(hypothesis.log_probability for hypothesis in hypotheses)
        tokens = [token for hypothesis in hypotheses for token in hypothesis.tokens]
        length = sum(hypothesis.length for hypothesis in hypotheses)
        score = hypotheses[0].score
        if len(hypotheses) > 1:
            score = total / self.search.penalty(length)
            score += sum(hypothesis.coverage_penalty for hypothesis in hypotheses)
            if self.search.algorithm == "mbr":
                score = fmean(hypothesis.score for hypothesis in hypotheses)
        is_unfinished = any(
            len(hypothesis.tokens) >= limit
            for hypothesis, limit in zip(hypotheses, limits, strict=True)
        )
        subwords = tuple(self.tokenizer.subwords(tokens))
        return Candidate(text, score, total, subwords, length, is_unfinished)
