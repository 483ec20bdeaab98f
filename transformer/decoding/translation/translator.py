"""Raw text in, raw text out: the one door through which anything is translated.

Validation, ``evaluate`` and ``translate`` all come through here. It does not know files, the
command line or metrics.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.data.text.word_alignment import NO_WORD, Links, subword_words
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner, word_links
from transformer.decoding.batched_search import (
    ModelSearcher,
    Searcher,
    hypothesis_texts,
    max_subwords,
)
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.inference_mode import evaluating
from transformer.decoding.long_inputs import (
    Segment,
    segment_lengths,
    split_segments,
    warn_about_segments,
)
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.ensemble import Ensemble, Model, leader
from transformer.decoding.search.interface import Hypothesis
from transformer.decoding.translation.length_limit import LengthLimit
from transformer.decoding.translation.line_windows import make_windows
from transformer.decoding.translation.nbest import NBest, with_attention
from transformer.decoding.translation.result import BLANK, Candidate, Translation
from transformer.decoding.translation.trained import trained_with
from transformer.model.checkpoint.checkpoint import load_checkpoint
from transformer.model.heads import HeadName
from transformer.model.transformer import Transformer


class Translator:
    """A model, its tokenizer and a search."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        search: SearchConfig,
        batch_tokens: int,
        device: torch.device | str = "cpu",
        aligner: Aligner | None = None,
        coverage_head: HeadName | None = None,
    ) -> None:
        """Move the model to the device and translate with it as it is at each call.

        Args:
            model: Or an ensemble, whose first model's attention is read. May be in training; its
                mode is restored after each call.
            tokenizer: The one the model was trained with.
            search: How to search.
            batch_tokens: The most padded source tokens of a batch, counted once a hypothesis;
                memory grows with it. A longer sentence makes a batch alone.
            device: Where to compute.
            aligner: How alignment is read off; None for a model that was not guided.
            coverage_head: Where the coverage penalty looks, as in ``aligning_attention``: the head
                that was guided, if one was. How alignment is read off changes no translation.

        Raises:
            InputError: No token makes a batch, or there is no such head or utility.
        """
        self.device = torch.device(device)
        self.asked = model.to(self.device)
        self.model = leader(model)
        self.tokenizer = tokenizer
        self.search = search
        self.batch_tokens = batch_tokens
        self.aligner = (aligner or Aligner()).checked(self.model.config)
        self.searcher: Searcher = ModelSearcher(
            model, tokenizer, search, batch_tokens, coverage_head
        )
        self.length_limit = LengthLimit(search, max_subwords(model))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        search: SearchConfig | None = None,
        batch_tokens: int = 4096,
        device: torch.device | str = "cpu",
        aligner: Aligner | None = None,
    ) -> "Translator":
        """Load a checkpoint file, or the best checkpoint of a run directory.

        Without ``search``, search as the run did that wrote the checkpoint; without ``aligner``,
        read alignment off the head that the run guided, if it guided one (``Aligner.trained``).

        Raises:
            InputError: There is no checkpoint, or it cannot be read.
        """
        checkpoint = load_checkpoint(path)
        trained = trained_with(checkpoint)
        return cls(
            *(checkpoint.model, trained.tokenizer, search or trained.search, batch_tokens, device),
            aligner=aligner or trained.aligner,
            coverage_head=trained.aligner.head,
        )

    @property
    def members(self) -> list[Transformer]:
        """The models that are asked: one, or those of the ensemble."""
        return self.asked.members if isinstance(self.asked, Ensemble) else [self.model]

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

        A text of more pieces than ``model.max_length`` is cut into segments, at ends of sentences
        if it has any, with a warning in the log; their translations are joined by a space.

        Args:
            texts: Any strings, also empty or with control characters; a ``TaggedText`` has its own
                tags before it, any other those of the tokenizer.
            constraints: What is asked of each translation; ``Translation.unmet`` tells what the
                search could not meet. ``split_segments`` shares them out where a text is cut.
            attention: Also return where the best candidate looked, as the aligner sees it.
            alignment: Also return the word links of the best candidate.
            names: What a warning calls each text.

        Raises:
            NotANumber: The model gave NaN.
            TypeError: There is one string, not a list of them.
            InputError: Phrases must occur, and the search is not beam search; or a tag is unknown
                to the model, or missing.
        """
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts, not one string; give [text]")
        asked = [None] * len(texts) if constraints is None else list(constraints)
        with evaluating(self.asked):
            encoded = self.tokenizer.encode_source(texts)
            segmented = [
                self._segments(subwords, one) if text.strip() else []
                for text, subwords, one in zip(texts, encoded, asked, strict=True)
            ]
            warn_about_segments(list(map(len, segmented)), names, self.asked.config.max_length)
            flat = [segment for segments in segmented for segment in segments]
            lists = iter(self._search(flat, attention or alignment))
            return [
                self._join(segments, [next(lists) for _ in segments], attention, alignment).checked(
                    one
                )
                for segments, one in zip(segmented, asked, strict=True)
            ]

    def translate_stream(
        self,
        lines: Iterable[str | Request],
        *,
        ready: Callable[[], bool] | None = None,
        attention: bool = False,
        alignment: bool = False,
        name: Callable[[int], str] = lambda index: f"line {index + 1}",
    ) -> Iterator[Translation]:
        """Translate lines as they come, holding no more than a window of them.

        Args:
            lines: One text each, with or without its line end, or with what is asked of its
                translation. Where they end in an error, the lines before it are translated first.
            ready: Whether the next line can be had without waiting. Where it cannot, those at
                hand are translated first, so that someone who waits for the answer to a line
                before sending the next one gets it. Without it, lines are taken to be at hand.
            attention: See ``translate``.
            alignment: See ``translate``.
            name: What a warning calls a line of this index, from 0.
        """
        start = 0
        for window in make_windows(lines, ready):
            yield from self.translate(
                [request.text for request in window],
                [request.constraints for request in window],
                attention=attention,
                alignment=alignment,
                names=[name(start + position) for position in range(len(window))],
            )
            start += len(window)

    def _segments(self, subwords: list[int], constraints: Constraints | None) -> list[Segment]:
        # The trained length, whatever the positions: beyond it text is cut, not extrapolated.
        most = max_subwords(self.asked)
        if not subwords:
            return []
        count = self.tokenizer.leading_tags(subwords)
        tags, text = subwords[:count], subwords[count:]
        lengths = [len(text)]
        if len(subwords) > most:
            room = max(1, most - count)
            lengths = segment_lengths(self.tokenizer.source_subwords(text), room)
        return split_segments(text, lengths, constraints, tags)

    def _search(self, segments: list[Segment], attention: bool) -> list[NBest]:
        found = self.length_limit.counted(segments, self.searcher(segments))
        if not attention:
            return [NBest(hypotheses) for hypotheses in found]
        subwords = [segment.subwords for segment in segments]
        return with_attention(self.model, subwords, found, self.aligner.head, self.batch_tokens)

    def _join(
        self, segments: list[Segment], lists: list[NBest], attention: bool, alignment: bool
    ) -> Translation:
        """Make one translation of those of its segments: mostly one, none of a blank text."""
        if not segments:
            return replace(BLANK, alignment=frozenset()) if alignment else BLANK
        ranks = zip(*(nbest.hypotheses for nbest in lists), strict=False)
        nbest = tuple(self._candidate(hypotheses) for hypotheses in ranks)
        weights = torch.block_diag(*[f.attention for f in lists if f.attention is not None])
        source = [p for s in segments for p in self.tokenizer.source_subwords(s.subwords)]
        return Translation(
            text=nbest[0].text,
            score=nbest[0].score,
            tokens=nbest[0].tokens,
            nbest=nbest,
            source_tokens=tuple(source),
            attention=weights if attention else None,
            alignment=self._links(weights, source, lists) if alignment else None,
        )

    def _links(
        self, weights: Float[Tensor, "target source"], source: list[str], lists: list[NBest]
    ) -> Links:
        """Words are counted through all segments, each of which begins a new target word."""
        target_words: list[int] = []
        for nbest in lists:
            words = subword_words(self.tokenizer.subwords(nbest.hypotheses[0].tokens))
            first = max(target_words, default=-1) + 1
            target_words += [word if word == NO_WORD else first + word for word in words]
        return word_links(weights, subword_words(source), target_words, self.aligner.near_best)

    def _candidate(self, hypotheses: Sequence[Hypothesis]) -> Candidate:
        text = " ".join(text for text in hypothesis_texts(hypotheses, self.tokenizer) if text)
        total = sum(hypothesis.log_probability for hypothesis in hypotheses)
        tokens = [token for hypothesis in hypotheses for token in hypothesis.tokens]
        score = hypotheses[0].score
        if len(hypotheses) > 1:
            score = total / self.search.penalty(len(tokens) + len(hypotheses))
            if self.search.algorithm == "mbr":
                score = fmean(hypothesis.score for hypothesis in hypotheses)
        return Candidate(text, score, total, tuple(self.tokenizer.subwords(tokens)))
