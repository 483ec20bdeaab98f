"""Raw text to raw text: validation, ``evaluate`` and ``translate`` all translate with it."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.checkpoint.checkpoint import Checkpoint
from transformer.checkpoint.exported import load_model
from transformer.common.errors import errors_name
from transformer.common.files import local_path
from transformer.data.text.phrases import occurs
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner, batched_attention, joined_links
from transformer.decoding.batched_search import (
    ModelSearcher,
    hypothesis_texts,
    max_subwords,
)
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import LinkedWords
from transformer.decoding.line_windows import make_windows
from transformer.decoding.long_inputs import (
    Segment,
    SourceLimits,
    SplitLines,
    join_parts,
    split_segments,
)
from transformer.decoding.search.ensemble import Model, ensemble_members
from transformer.decoding.search.interface import Hypothesis
from transformer.decoding.search.shortlist import with_shortlist_of
from transformer.decoding.translation.result import BLANK, Candidate, Translation
from transformer.model.head_masks import HeadName
from transformer.model.layers.dropout import evaluating
from transformer.model.layers.quantization import in_precision
from transformer.settings.decoding import SearchConfig
from transformer.settings.model import Precision


class Trained(NamedTuple):
    """The settings of a checkpoint for translation."""

    tokenizer: Tokenizer
    search: SearchConfig
    aligner: Aligner
    limits: SourceLimits


def trained_with(checkpoint: Checkpoint) -> Trained:
    """Read the settings: the search of the validation, or the best search of ``tune``."""
    model, config = checkpoint.model.config, checkpoint.config
    with errors_name(checkpoint.path):
        tokenizer = Tokenizer.from_state(checkpoint.portable.tokenizer)
        tokenizer.check_vocabulary_sizes(model.source_vocab_size, model.target_vocab_size)
        aligner = Aligner.trained(config.loss, model)
        longest = max_subwords(checkpoint.model)
        limits = SourceLimits.trained(config, longest, checkpoint.portable.longest_source)
        return Trained(tokenizer, config.decoding, aligner, limits)


class Translator:
    """A model, its tokenizer and a search; ``model`` is the first of an ensemble's ``members``."""

    searcher: Callable[[Sequence[Segment]], list[list[Hypothesis]]]
    """Finds up to ``nbest`` hypotheses per segment: our search, or another engine."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        search: SearchConfig,
        batch_tokens: int,
        device: torch.device | str = "cpu",
        aligner: Aligner | None = None,
        coverage_head: HeadName | None = None,
        limits: SourceLimits | None = None,
    ) -> None:
        """Move the model, or ensemble, to the device; each call uses its present weights.

        ``batch_tokens`` counts padded source tokens once per hypothesis; ``coverage_head`` is the
        head that the coverage penalty reads. Without ``limits`` only a source that exceeds the
        positions of the model is split.
        """
        self._model = model.to(device)
        self.members = ensemble_members(model)
        self.model = self.members[0]
        self.tokenizer, self.search = tokenizer, search
        self.batch_tokens, self.coverage_head = batch_tokens, coverage_head
        self.aligner = aligner or Aligner()
        self.aligner.check(self.model.config)
        self.searcher = ModelSearcher(model, tokenizer, search, batch_tokens, coverage_head)
        most = max_subwords(model)
        limits = limits or SourceLimits(most, most)
        self.limits = replace(limits, longest=most, usual=min(most, limits.usual))
        self.split_lines = SplitLines(self.limits)

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
        """Load a checkpoint file, the best of a run, an export, or a model of the Hub, USER/MODEL.

        By default, ``search`` and ``aligner`` come from the run. A model that is stored in bfloat16
        is loaded in the memory of its weights by ``precision="bfloat16"``.
        """
        checkpoint = load_model(local_path(os.fspath(path)))
        trained = trained_with(checkpoint)
        search = with_shortlist_of(search or trained.search, checkpoint.path)
        return cls(
            in_precision(checkpoint.model, precision, device, untie=False),
            *(trained.tokenizer, search, batch_tokens, device),
            aligner=aligner or trained.aligner,
            coverage_head=trained.aligner.head,
            limits=trained.limits,
        )

    def with_search(self, search: SearchConfig) -> "Translator":
        """The same model with this search by our code, for any present engine."""
        return Translator(
            *(self._model, self.tokenizer, search, self.batch_tokens, self.device),
            aligner=self.aligner,
            coverage_head=self.coverage_head,
            limits=self.limits,
        )

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
        alignment: bool = False,
        names: Sequence[str] = (),
    ) -> list[Translation]:
        """Translate texts, in their order; a blank text has a blank translation.

        A text that is longer than the model knows is split (``SourceLimits``), with a warning that
        uses ``names``. A ``TaggedText`` has its own tags, other texts have the tokenizer's.
        Attention and word links are those of the best candidate.
        """
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts, not one string; give [text]")
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise TypeError(f"translate takes a list of texts; {wrong[0]!r} is no string")
        constraints = [None] * len(texts) if constraints is None else constraints
        constraints = [
            one and one.on_source(text) for one, text in zip(constraints, texts, strict=True)
        ]
        with self.split_lines.warning_once(), evaluating(self._model):
            encoded, given = self.tokenizer.encode_source(texts), self.tokenizer.target_tags(texts)
            rows = zip(texts, encoded, constraints, given, strict=True)
            segmented = [
                split_segments(row if text.strip() else [], one, self.tokenizer, self.limits, tags)
                for text, row, one, tags in rows
            ]
            self.split_lines.count(list(map(len, segmented)), names)
            segmented = [
                self._with_phrases(segments, one.must) if one and len(segments) > 1 else segments
                for segments, one in zip(segmented, constraints, strict=True)
            ]
            flat = [segment for segments in segmented for segment in segments]
            flat = self._without_terms(flat)
            found = self.searcher(flat)
            maps = [torch.empty(0, 0)] * len(flat)
            if attention or alignment:
                # The search keeps its fast kernel: the attention is computed again.
                pairs = [(s.subwords, beam[0].tokens) for s, beam in zip(flat, found, strict=True)]
                maps = batched_attention(self.model, pairs, self.aligner.head, self.batch_tokens)
            parts = zip(found, maps, strict=True)
            joined = [
                self._join(segments, [next(parts) for _ in segments], attention, alignment)
                for segments in segmented
            ]
        return [one.checked(limits) for one, limits in zip(joined, constraints, strict=True)]

    def windows(self, texts: Sequence[str]) -> list[range]:
        """The indices of the texts that are translated together: each text is translated alone."""
        return [range(index, index + 1) for index in range(len(texts))]

    def translate_windows(
        self, texts: Sequence[str], windows: Sequence[range]
    ) -> list[list[Translation]]:
        """Return the translations of the texts of each of these `windows`."""
        found = iter(self.translate([texts[index] for window in windows for index in window]))
        return [[next(found) for _ in window] for window in windows]

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
        start, requests = 0, map(Request.from_line, lines)
        with self.split_lines.warning_once():
            for window in make_windows(requests, ready, lambda one: len(one.text)):
                yield from self.translate(
                    [request.text for request in window],
                    [request.constraints for request in window],
                    attention=attention,
                    alignment=alignment,
                    names=[name(start + index) for index in range(len(window))],
                )
                start += len(window)

    def _with_phrases(self, segments: list[Segment], must: Sequence[str]) -> list[Segment]:
        """Require each phrase of a split text where it is anyway, or where it costs the least."""
        if not must:
            return segments
        free = self.searcher(segments)
        texts = self._best_texts(free)
        placed: list[list[str]] = [[] for _ in segments]
        for phrase in must:
            costs = [0.0 if occurs(phrase, text) else math.inf for text in texts]
            if math.inf in costs and 0.0 not in costs:
                forced = self.searcher([segment.requiring([phrase]) for segment in segments])
                costs = [
                    own[0].log_probability - other[0].log_probability
                    if occurs(phrase, text)
                    else math.inf
                    for own, other, text in zip(free, forced, self._best_texts(forced), strict=True)
                ]
            placed[costs.index(min(costs))].append(phrase)
        return [segment.requiring(own) for segment, own in zip(segments, placed, strict=True)]

    def _best_texts(self, beams: Sequence[Sequence[Hypothesis]]) -> list[str]:
        return hypothesis_texts([best for best, *_ in beams], self.tokenizer)

    def _without_terms(self, segments: list[Segment]) -> list[Segment]:
        """Terms become required phrases, and forbidden words of a free translation."""
        terms = {
            index: segment.constraints
            for index, segment in enumerate(segments)
            if segment.constraints and segment.constraints.terms
        }
        own: list[tuple[str, ...]] = [()] * len(terms)
        if terms and self.device.type != "meta":
            free = [
                replace(segments[index], constraints=replace(one, must=(), terms=()) or None)
                for index, one in terms.items()
            ]
            pairs = [
                (segment.subwords, beam[0].tokens)
                for segment, beam in zip(free, self.searcher(free), strict=True)
            ]
            maps = batched_attention(self.model, pairs, self.aligner.head, self.batch_tokens)
            own = [
                LinkedWords.from_attention(*pair, weights, self.tokenizer).own(one.terms)
                for one, pair, weights in zip(terms.values(), pairs, maps, strict=True)
            ]
        required = {
            index: one.with_terms_required(words)
            for (index, one), words in zip(terms.items(), own, strict=True)
        }
        return [
            replace(segment, constraints=required.get(index, segment.constraints))
            for index, segment in enumerate(segments)
        ]

    def _join(
        self,
        segments: list[Segment],
        parts: list[tuple[list[Hypothesis], Tensor]],
        attention: bool,
        alignment: bool,
    ) -> Translation:
        if not segments:
            return replace(BLANK, alignment=frozenset()) if alignment else BLANK
        limits = [self._limit(segment) for segment in segments]
        beams = zip(*(beam for beam, _ in parts), strict=False)
        nbest = tuple(self._candidate(hypotheses, limits) for hypotheses in beams)
        source = [self.tokenizer.source_subwords(segment.subwords) for segment in segments]
        links = None
        if alignment:
            targets = [self.tokenizer.subwords(best.tokens) for (best, *_), _ in parts]
            maps = [weights for _, weights in parts]
            links = joined_links(maps, source, targets, self.aligner.near_best)
        return Translation(
            *(nbest[0].text, nbest[0].score, nbest[0].tokens, nbest),
            tuple(chain.from_iterable(source)),
            attention=torch.block_diag(*(part for _, part in parts)) if attention else None,
            alignment=links,
            parts=len(segments),
        )

    def _limit(self, segment: Segment) -> int:
        """Maximal subwords of its translation."""
        limit = self.search.limit(len(segment.subwords)) + len(segment.given)
        return min(self.limits.longest, limit)

    def _candidate(self, hypotheses: Sequence[Hypothesis], limits: Sequence[int]) -> Candidate:
        text = join_parts(hypothesis_texts(hypotheses, self.tokenizer))
        total = sum(hypothesis.log_probability for hypothesis in hypotheses)
        tokens = [token for hypothesis in hypotheses for token in hypothesis.tokens]
        score = hypotheses[0].score
        if len(hypotheses) > 1:
            score = total / self.search.penalty(len(tokens) + len(hypotheses))
            if self.search.algorithm == "mbr":
                score = fmean(hypothesis.score for hypothesis in hypotheses)
        is_unfinished = any(len(h.tokens) >= n for h, n in zip(hypotheses, limits, strict=True))
        return Candidate(text, score, total, tuple(self.tokenizer.subwords(tokens)), is_unfinished)
