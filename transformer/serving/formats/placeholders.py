"""Keeps placeholders, URLs and e-mail addresses unchanged in translations.

If a translation does not have each as often as its source, the sentence is translated without them,
and each goes beside the translation of its neighbor. It runs in the thread that owns the models.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
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
from transformer.serving.formats.tag_projection import NEAR_BEST, Cell, PlainText, Span, project
from transformer.serving.sentences import split_sentences

TranslateBatch = Callable[[Options, Sequence[Sentence]], list[SentenceTranslation]]

_WORD = re.compile(r"[^ \n]+")


def translate_with_placeholders(
    options: Options, sentences: Sequence[Sentence], translate: TranslateBatch = translate_batch
) -> list[SentenceTranslation]:
    """Translate sentences together, as ``translate_batch``; whole lines need no placeholders."""
    translations = translate(options, sentences)
    if options.direction.whole_lines:
        return translations
    lost = []
    for index, translation in enumerate(translations):
        source = translation.source
        if PLACEHOLDER.search(source):
            alternatives = [
                text for text in translation.alternatives if keeps_placeholders(source, text)
            ]
            translations[index] = replace(translation, alternatives=tuple(alternatives))
            if not keeps_placeholders(source, translation.text):
                lost.append(index)
    plain = {index: _without(sentences[index].text) for index in lost}
    for links in (True, False):
        indices = [i for i in lost if can_link(options.direction, plain[i].text) is links]
        texts = [Sentence(plain[i].text.strip(), sentences[i].constraints) for i in indices]
        near_best = NEAR_BEST if links else None
        again = replace(options, alternatives=0, attention=False, links=links, near_best=near_best)
        results = translate(again, texts) if texts else []
        for index, result in zip(indices, results, strict=True):
            translations[index] = _restored(sentences[index].text, plain[index], result, options)
    return translations


def _without(text: str) -> PlainText:
    """A sentence whose placeholders are kept, each with the rest of its word."""

    def spans() -> Iterator[Span]:
        position = 0
        for match in PLACEHOLDER.finditer(text):
            start, end = match.span()
            while start > position and text[start - 1].isalnum():
                start -= 1
            while end < len(text) and text[end].isalnum():
                end += 1
            if position < start:
                yield Span(text[position:start])
            if position < end:
                yield Span(text[max(position, start) : end], keep=True)
            position = max(position, end)
        if position < len(text):
            yield Span(text[position:])

    return PlainText(tuple(spans()))


def _restored(
    source: str, plain: PlainText, translation: SentenceTranslation, options: Options
) -> SentenceTranslation:
    """The translation of a sentence from that of the text without its placeholders.

    It is the source if the model writes a placeholder itself. Each word has the confidence of the
    sentence; there is no attention, since the model saw another source.
    """
    parts = split_sentences(plain.text, options.direction.source, "none")
    blank = SentenceTranslation("", "")
    whole = TextTranslation(
        tuple((part, translation if part.sentence else blank) for part in parts)
    )
    cells = project(plain, whole)
    text = "".join(cell.text for cell in cells)
    if not any(map(str.isalpha, plain.text)) or not keeps_placeholders(source, text):
        cells = []
        text = source
    word_confidence = None
    if translation.confidence is not None:
        word_confidence = (translation.confidence,) * len(_WORD.findall(text))
    return replace(
        translation,
        source=source,
        text=text,
        links=tuple(_links(source, text, plain, cells)) if options.links else None,
        word_confidence=word_confidence,
    )


def _links(source: str, text: str, plain: PlainText, cells: Sequence[Cell]) -> list[Link]:
    offsets = [cell.start for cell in plain.kept]
    lengths = [0, *accumulate(len(cell.text) for cell in plain.kept)]
    source_words = [match.start() for match in _WORD.finditer(source)]
    target_words = [match.start() for match in _WORD.finditer(text)]
    links: set[Link] = set()
    position = 0
    for cell in cells:
        if cell.start >= 0:
            bisect = bisect_left if cell.kept else bisect_right
            start = cell.start + lengths[bisect(offsets, cell.start)]
            source_word = bisect_right(source_words, start) - 1
            target_word = bisect_right(target_words, position) - 1
            links.add((source_word, target_word))
        position += len(cell.text)
    return sorted(links)
