"""Keeps placeholders, URLs and e-mail addresses unchanged in translations.

If a translation does not have each as often as its source, the sentence is translated without them,
and each goes beside the translation of its neighbor. It runs in the thread that owns the models.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from transformer.data.text.placeholders import PLACEHOLDER, keeps_placeholders
from transformer.data.text.word_alignment import Link
from transformer.serving.batch_translation import (
    Options,
    Sentence,
    SentenceTranslation,
    TextTranslation,
    can_link,
    translate_batch,
)
from transformer.serving.formats.spans import Cell, PlainText, Span
from transformer.serving.formats.tag_projection import NEAR_BEST, project
from transformer.serving.sentences import split_sentences

_WORD = re.compile(r"[^ \n]+")


def translate_with_placeholders(
    options: Options, sentences: Sequence[Sentence]
) -> list[SentenceTranslation]:
    """Translate sentences together, as ``translate_batch``; whole lines need no placeholders."""
    found = translate_batch(options, sentences)
    if options.direction.whole_lines:
        return found
    lost = []
    for index, one in enumerate(found):
        if PLACEHOLDER.search(one.source):
            kept = (text for text in one.alternatives if keeps_placeholders(one.source, text))
            found[index] = replace(one, alternatives=tuple(kept))
            if not keeps_placeholders(one.source, one.text):
                lost.append(index)
    plain = {index: _without(sentences[index].text) for index in lost}
    for links in (True, False):
        indices = [i for i in lost if can_link(options.direction, plain[i].text) is links]
        texts = [Sentence(plain[i].text.strip(), sentences[i].constraints) for i in indices]
        near_best = NEAR_BEST if links else None
        again = replace(options, alternatives=0, attention=False, links=links, near_best=near_best)
        results = translate_batch(again, texts) if texts else []
        for index, result in zip(indices, results, strict=True):
            found[index] = _restored(sentences[index].text, plain[index], result, options)
    return found


def _without(text: str) -> PlainText:
    """A sentence whose placeholders are kept, each with the rest of its word."""

    def spans() -> Iterator[Span]:
        at = 0
        for match in PLACEHOLDER.finditer(text):
            start, end = match.span()
            while start > at and text[start - 1].isalnum():
                start -= 1
            while end < len(text) and text[end].isalnum():
                end += 1
            if at < start:
                yield Span(text[at:start])
            if at < end:
                yield Span(text[max(at, start) : end], keep=True)
            at = max(at, end)
        if at < len(text):
            yield Span(text[at:])

    return PlainText(tuple(spans()))


def _restored(
    source: str, plain: PlainText, found: SentenceTranslation, options: Options
) -> SentenceTranslation:
    """The translation of a sentence, made of that without its placeholders.

    It is the source if the model writes a placeholder itself. Each word has the confidence of the
    sentence; there is no attention, since the model saw another source.
    """
    parts = split_sentences(plain.text, options.direction.source, "none")
    blank = SentenceTranslation("", "")
    whole = TextTranslation(tuple((part, found if part.sentence else blank) for part in parts))
    cells = project(plain, whole)
    text = "".join(cell.text for cell in cells)
    if not any(map(str.isalpha, plain.text)) or not keeps_placeholders(source, text):
        cells, text = [], source
    confidence = found.confidence
    return replace(
        found,
        source=source,
        text=text,
        links=tuple(_links(source, text, plain, cells)) if options.links else None,
        word_confidence=None if confidence is None else (confidence,) * len(_WORD.findall(text)),
    )


def _links(source: str, text: str, plain: PlainText, cells: Sequence[Cell]) -> list[Link]:
    offsets = [cell.start for cell in plain.kept]
    lengths = [0, *accumulate(len(cell.text) for cell in plain.kept)]
    source_words, words = ([match.start() for match in _WORD.finditer(t)] for t in (source, text))
    links: set[Link] = set()
    at = 0
    for cell in cells:
        if cell.start >= 0:
            before = (bisect_left if cell.kept else bisect_right)(offsets, cell.start)
            first = cell.start + lengths[before]
            links.add((bisect_right(source_words, first) - 1, bisect_right(words, at) - 1))
        at += len(cell.text)
    return sorted(links)
