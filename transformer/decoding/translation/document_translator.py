"""Translate documents: windows of consecutive sentences together, and one translation a sentence.

A model trained with ``data.documents`` reads and writes separators between sentences. A window
whose translation has not as many sentences is translated again, sentence by sentence. It knows
texts and translations, and neither the model nor the search.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby, pairwise

import torch

from transformer.data.text.document_windows import begins_window
from transformer.data.tokenization.tags import SENTENCE_END, parse_tags, with_tags
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.translation.line_windows import make_windows
from transformer.decoding.translation.result import Candidate, Translation
from transformer.decoding.translation.translator import Translator

Window = range
"""The places of consecutive texts that are translated together."""


class DocumentTranslator:
    """Translates texts as sentences of documents; a blank text ends a document.

    What a translation says of itself besides its text and tokens, its score above all, is of the
    whole window.
    """

    def __init__(self, translator: Translator) -> None:
        """Translate with a model that was trained with documents, as it is at each call."""
        self.translator = translator
        self.tokenizer = translator.tokenizer
        self.search = translator.search
        self.members = translator.members
        self.length_limit = translator.length_limit
        self.tags = self.tokenizer.tags

    def translate(
        self, texts: Sequence[str], constraints: Sequence[Constraints | None] | None = None
    ) -> list[Translation]:
        """Translate texts, in their order; see ``Translator.translate``.

        A text of which something is asked is translated alone.
        """
        windows = self.windows(texts, constraints)
        found = self.translate_windows(texts, windows, constraints)
        return [translation for window in found for translation in window]

    def translate_stream(
        self,
        lines: Iterable[str | Request],
        *,
        ready: Callable[[], bool] | None = None,
        done: int = 0,
    ) -> Iterator[Translation]:
        """Translate lines as they come, when their window is full or their document at an end.

        Args:
            lines: See ``Translator.translate_stream``; where they end in an error, a document
                ends there.
            ready: See there; it never changes which lines make a window.
            done: So many of the first are not wanted; those after them are translated as with them.
        """
        held: list[Request] = []
        reading = make_windows(lines, ready)
        failure: Exception | None = None
        while failure is None:
            try:
                held += next(reading)
            except StopIteration:
                break
            except Exception as error:
                failure = error
            windows = self._windows(held)
            # More sentences may come for the last.
            if windows and not self._is_closed(held, windows[-1]):
                windows.pop()
            yield from self._answers(held, windows, done)
            read = windows[-1].stop if windows else 0
            held, done = held[read:], max(0, done - read)
        yield from self._answers(held, self._windows(held), done)
        if failure is not None:
            raise failure

    def windows(
        self, texts: Sequence[str], asked: Sequence[Constraints | None] | None = None
    ) -> list[Window]:
        """Cut texts into windows; each text is in one.

        Raises:
            InputError: A tag is unknown to the model, or missing.
        """
        rows = self.tokenizer.encode_source(texts)
        most = min(self.tags.subwords, max_subwords(self.translator.asked))
        starts: list[int] = []
        # What is to begin with other tags is another text.
        for _, run in groupby(range(len(texts)), lambda position: parse_tags(texts[position])):
            indices = list(run)
            leading = max(self.tokenizer.leading_tags(rows[position]) for position in indices)
            alone = [
                not rows[position] or not texts[position].strip() or bool(asked and asked[position])
                for position in indices
            ]
            lengths = [
                None if alone[index] else (len(rows[position]) - leading,)
                for index, position in enumerate(indices)
            ]
            begins = begins_window(lengths, self.tags.sentences, most - leading)
            starts += [position for position, first in zip(indices, begins, strict=True) if first]
        return [range(*pair) for pair in pairwise([*starts, len(texts)])]

    def _windows(self, requests: Sequence[Request]) -> list[Window]:
        return self.windows(
            [request.text for request in requests], [request.constraints for request in requests]
        )

    def _is_closed(self, requests: Sequence[Request], window: Window) -> bool:
        return len(window) == self.tags.sentences or not requests[window[-1]].text.strip()

    def _answers(
        self, requests: Sequence[Request], windows: Sequence[Window], done: int
    ) -> Iterator[Translation]:
        wanted = [window for window in windows if window.stop > done]
        texts = [request.text for request in requests]
        asked = [request.constraints for request in requests]
        for window, found in zip(wanted, self.translate_windows(texts, wanted, asked), strict=True):
            yield from found[max(0, done - window.start) :]

    def translate_windows(
        self,
        texts: Sequence[str],
        windows: Sequence[Window],
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[list[Translation]]:
        """Return the translations of the texts of each of these windows."""
        asked = constraints or [None] * len(texts)
        together = self.translator.translate(
            [_joined([texts[position] for position in window]) for window in windows],
            [asked[window.start] if len(window) == 1 else None for window in windows],
        )
        found = [self._parted(one, len(w)) for one, w in zip(together, windows, strict=True)]
        pairs = list(zip(windows, found, strict=True))
        alone = [
            _joined([texts[position]])
            for window, parts in pairs
            if not parts
            for position in window
        ]
        again = iter(self.translator.translate(alone))
        return [parts or [next(again) for _ in window] for window, parts in pairs]

    def _parted(self, translation: Translation, count: int) -> list[Translation]:
        """Return the translation of each sentence; none where they are not as many."""
        if count == 1:
            return [translation]
        candidates = [self._candidates(one) for one in translation.nbest]
        if len(candidates[0]) != count or not all(one.text for one in candidates[0]):
            return []
        sources = _split_at(self.tags.spelt[0], translation.source_tokens)
        parts = zip(*(row for row in candidates if len(row) == count), strict=True)
        return [
            Translation(nbest[0].text, nbest[0].score, nbest[0].tokens, nbest, source)
            for nbest, source in zip(parts, sources, strict=True)
        ]

    def _candidates(self, candidate: Candidate) -> list[Candidate]:
        """Part one of the window into one a sentence."""
        parts = _split_at(self.tags.spelt[0], candidate.tokens)
        texts = self.tokenizer.decode_target(
            [[self._ids[subword] for subword in tokens] for tokens in parts]
        )
        return [
            replace(candidate, text=text.replace("\n", " "), tokens=tokens)
            for text, tokens in zip(texts, parts, strict=True)
        ]

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.translator.device

    @device.setter
    def device(self, device: torch.device) -> None:
        self.translator.device = device

    @cached_property
    def _ids(self) -> dict[str, int]:
        subwords = self.tokenizer.subwords(range(self.tokenizer.target_vocab_size))
        return {subword: number for number, subword in enumerate(subwords)}


def in_documents(translator: Translator) -> Translator | DocumentTranslator:
    """Whatever translates as the model was trained: sentences, or documents."""
    documents = translator.tokenizer.tags.sentences > 0
    return DocumentTranslator(translator) if documents else translator


def group_units(translator: Translator | DocumentTranslator, texts: Sequence[str]) -> list[Window]:
    """What can be shared out among processes: windows of documents, or single texts."""
    if isinstance(translator, DocumentTranslator):
        return translator.windows(texts)
    return [range(position, position + 1) for position in range(len(texts))]


def translate_units(
    translator: Translator | DocumentTranslator, texts: Sequence[str], units: Sequence[Window]
) -> list[list[Translation]]:
    """The translations of some of these units of the texts."""
    if isinstance(translator, DocumentTranslator):
        return translator.translate_windows(texts, units)
    return [[one] for one in translator.translate([texts[unit.start] for unit in units])]


def _joined(texts: Sequence[str]) -> str:
    """One text of them, with the tags of the first."""
    lines = (text.replace(SENTENCE_END, " ") for text in texts)
    return with_tags(SENTENCE_END.join(lines), parse_tags(texts[0]))


def _split_at(separator: str, subwords: Sequence[str]) -> list[tuple[str, ...]]:
    parts: list[list[str]] = [[]]
    for subword in subwords:
        if subword == separator:
            parts.append([])
        else:
            parts[-1].append(subword)
    return [tuple(part) for part in parts]
