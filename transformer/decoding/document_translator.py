"""Translate documents: windows of consecutive sentences together, one translation per sentence.

A model trained with ``data.documents`` reads and writes separators between sentences. If the
translation of a window has another number of sentences, each sentence is translated alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby, islice, pairwise

from transformer.data.text.document_windows import begins_window
from transformer.data.tokenization.tags import SENTENCE_END, parse_tags, with_tags
from transformer.decoding.batching import make_windows
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.long_inputs import SplitLines, counting_split_lines
from transformer.decoding.translator import Candidate, Translation, Translator


class DocumentTranslator:
    """Translates sentences of documents, which a blank text ends; scores are of whole windows."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self.tokenizer = translator.tokenizer
        self.search = translator.search
        self.members = translator.members
        self.tags = self.tokenizer.tags

    def translate(
        self, texts: Sequence[str], constraints: Sequence[Constraints | None] | None = None
    ) -> list[Translation]:
        """See ``Translator.translate``; a text with constraints is translated alone."""
        windows = self.translate_windows(texts, self.windows(texts, constraints), constraints)
        return list(chain.from_iterable(windows))

    def translate_stream(
        self,
        lines: Iterable[str | Request],
        *,
        ready: Callable[[], bool] | None = None,
        done: int = 0,
    ) -> Iterator[Translation]:
        """Translate a stream of lines when a window is full or a document ends.

        See ``Translator.translate_stream``. An error ends the document. ``ready`` never changes the
        windows. The first ``done`` lines are skipped; this does not change the other windows.
        """
        with counting_split_lines(self.translator.limits) as split_lines:
            yield from self._stream(map(Request.from_line, lines), ready, done, split_lines)

    def _stream(
        self,
        requests: Iterable[Request],
        ready: Callable[[], bool] | None,
        done: int,
        split_lines: SplitLines,
    ) -> Iterator[Translation]:
        waiting: list[Request] = []
        reading = make_windows(requests, ready, lambda request: len(request.text))
        ended = False
        failure = None
        while not ended:
            try:
                waiting += next(reading)
            except StopIteration:
                ended = True
            except Exception as error:
                ended = True
                failure = error
            texts = [request.text for request in waiting]
            constraints = [request.constraints for request in waiting]
            windows = self.windows(texts, constraints)
            if windows and not ended:
                last = windows[-1]
                if len(last) < self.tags.sentences and texts[last[-1]].strip():
                    windows.pop()  # more sentences may come for it
            needed = [window for window in windows if window.stop > done]
            translated = self.translate_windows(texts, needed, constraints, split_lines)
            for window, translations in zip(needed, translated, strict=True):
                yield from translations[max(0, done - window.start) :]
            read = windows[-1].stop if windows else 0
            waiting = waiting[read:]
            done = max(0, done - read)
        if failure is not None:
            raise failure

    def windows(
        self, texts: Sequence[str], constraints: Sequence[Constraints | None] | None = None
    ) -> list[range]:
        """The indices of the texts of each window."""
        constraints = constraints or [None] * len(texts)
        encoded = self.tokenizer.encode_source(texts)
        limit = min(self.tags.subwords, self.translator.limits.usual)
        starts: list[int] = []
        # Other tags begin another document.
        for _, group in groupby(range(len(texts)), lambda index: parse_tags(texts[index])):
            indices = list(group)
            leading = max(self.tokenizer.leading_tags(encoded[index]) for index in indices)
            alone = [i for i in indices if constraints[i] or not (encoded[i] and texts[i].strip())]
            lengths = [None if i in alone else (len(encoded[i]) - leading,) for i in indices]
            begins = begins_window(lengths, self.tags.sentences, limit - leading)
            starts += [index for index, first in zip(indices, begins, strict=True) if first]
        return [range(*pair) for pair in pairwise([*starts, len(texts)])]

    def translate_windows(
        self,
        texts: Sequence[str],
        windows: Sequence[range],
        constraints: Sequence[Constraints | None] | None = None,
        split_lines: SplitLines | None = None,
    ) -> list[list[Translation]]:
        """Return the translations of the texts of each of these `windows`."""
        constraints = constraints or [None] * len(texts)
        with counting_split_lines(self.translator.limits, split_lines) as counted:
            together = self.translator.translate(
                [_joined([texts[index] for index in window]) for window in windows],
                [constraints[window.start] if len(window) == 1 else None for window in windows],
                split_lines=counted,
            )
            split = [
                self._split(translation, len(window))
                for translation, window in zip(together, windows, strict=True)
            ]
            alone = [
                _joined([texts[index]])
                for window, sentences in zip(windows, split, strict=True)
                for index in window
                if not sentences
            ]
            singly = iter(self.translator.translate(alone, split_lines=counted))
        return [
            sentences or list(islice(singly, len(window)))
            for window, sentences in zip(windows, split, strict=True)
        ]

    def _split(self, translation: Translation, count: int) -> list[Translation]:
        """Return the translation of each sentence; none if their number is wrong."""
        if count == 1:
            return [translation]
        candidates = [self._sentences(candidate) for candidate in translation.nbest]
        if len(candidates[0]) != count or not all(sentence.text for sentence in candidates[0]):
            return []
        sources = _split_at(self.tags.spelled[0], translation.source_tokens)
        parts = zip(*(row for row in candidates if len(row) == count), strict=True)
        return [
            Translation(nbest[0].text, nbest[0].score, nbest[0].tokens, nbest, source)
            for nbest, source in zip(parts, sources, strict=True)
        ]

    def _sentences(self, candidate: Candidate) -> list[Candidate]:
        parts = _split_at(self.tags.spelled[0], candidate.tokens)
        ids = [[self._ids[subword] for subword in tokens] for tokens in parts]
        texts = [text.replace("\n", " ") for text in self.tokenizer.decode_target(ids)]
        sentences = [
            replace(candidate, text=text, tokens=tokens, is_unfinished=False)
            for text, tokens in zip(texts, parts, strict=True)
        ]
        sentences[-1] = replace(sentences[-1], is_unfinished=candidate.is_unfinished)
        return sentences

    @cached_property
    def _ids(self) -> dict[str, int]:
        subwords = self.tokenizer.subwords(range(self.tokenizer.target_vocab_size))
        return {subword: number for number, subword in enumerate(subwords)}


def in_documents(translator: Translator) -> Translator | DocumentTranslator:
    """The translator for the training text of the model: sentences or documents."""
    return DocumentTranslator(translator) if translator.tokenizer.tags.sentences else translator


def _joined(texts: Sequence[str]) -> str:
    lines = (text.replace(SENTENCE_END, " ") for text in texts)
    return with_tags(SENTENCE_END.join(lines), parse_tags(texts[0]))


def _split_at(separator: str, subwords: Sequence[str]) -> list[tuple[str, ...]]:
    ends = [index for index, subword in enumerate(subwords) if subword == separator]
    bounds = pairwise([-1, *ends, len(subwords)])
    return [tuple(subwords[start + 1 : end]) for start, end in bounds]
