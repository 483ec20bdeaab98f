"""How often a tag is around the right words of a translation.

    python benchmarks/serving/markup.py RUN [--split test] [--heads run mean 2.1 way]

Each sentence of pocket has a <b> around a random word or phrase of its source. A translation counts
that equals the reference, whose gold links say which words belong in the tag; phrases whose words
are no phrase of the reference are left out. Links are read from the cross-attention: as the ``run``
does (its guided head, or the ``mean`` of all heads above layer 0) or from a LAYER.HEAD; ``way`` has
none, so that a word goes to the same part of the way through the sentence.

Prints a table: exactly the right words, no word at all, and F1 over words.
"""

import argparse
import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from transformer.data.corpora.resolve import pocket_splits
from transformer.decoding.alignment import Aligner
from transformer.decoding.translator import Translator
from transformer.model.head_masks import HeadName
from transformer.serving.batch_translation import (
    Options,
    Sentence,
    TextTranslation,
    translate_batch,
)
from transformer.serving.formats.marked_text import Translate, translate_texts
from transformer.serving.formats.markup import Rules
from transformer.serving.languages import Direction
from transformer.serving.sentences import Part

TAG = re.compile(r"</?b>")


class Example(NamedTuple):
    """A source with a tag, its reference, and the reference words that belong in the tag."""

    source: str
    reference: str
    words: frozenset[int]


def examples(split: str) -> Iterator[Example]:
    """A random phrase of each sentence whose translation is one phrase, too."""
    chosen = random.Random(0)
    text = pocket_splits("en", "de")[split]
    for (source, reference), links in zip(text, text.word_links(), strict=True):
        words = source.split()
        length = min(chosen.choice((1, 1, 2, 3)), len(words))
        first = chosen.randrange(len(words) - length + 1)
        phrase = range(first, first + length)
        inside = {target for word, target in links.possible if word in phrase}
        outside = {target for word, target in links.possible if word not in phrase}
        if inside and not outside & set(range(min(inside), max(inside) + 1)):
            words[first] = "<b>" + words[first]
            words[first + length - 1] += "</b>"
            yield Example(" ".join(words), reference, frozenset(inside))


def sentences(use_links: bool) -> Translate:
    """Translates texts that are sentences, all of them in one call of the model."""

    async def translate(texts: Sequence[str], options: Options) -> list[TextTranslation]:
        found = translate_batch(options, list(map(Sentence, texts)))
        found = found if use_links else [replace(one, links=None) for one in found]
        parts = [Part("", text) for text in texts]
        return [TextTranslation((pair,)) for pair in zip(parts, found, strict=True)]

    return translate


def words_inside(marked: str) -> frozenset[int]:
    """The words of which a letter is in the tag."""
    before, inside, _ = TAG.split(marked)
    letters = (index for index, letter in enumerate(inside) if letter.isalnum())
    return frozenset(len(f"{before}{inside[:index]}x".split()) - 1 for index in letters)


def measure(translator: Translator, chosen: Sequence[Example], use_links: bool) -> str:
    """A row of the table."""
    options = Options(Direction("en", "de", translator), splitting="none")
    sources = [text.source for text in chosen]
    work = translate_texts(sentences(use_links), sources, options, Rules())
    texts = [text.text for text in asyncio.run(work)]
    found = [
        (words_inside(marked), example.words)
        for example, marked in zip(chosen, texts, strict=True)
        if TAG.sub("", marked) == example.reference
    ]
    exact = fmean(words == gold for words, gold in found)
    empty = fmean(not words for words, _ in found)
    f1 = 2 * sum(len(w & g) for w, g in found) / sum(len(w) + len(g) for w, g in found)
    return f"{100 * exact:.1f} | {100 * empty:.1f} | {100 * f1:.1f} | {len(found)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--split", default="test")
    parser.add_argument("--heads", nargs="*", default=["run", "way"])
    arguments = parser.parse_args()
    chosen = list(examples(arguments.split))
    print("| links | exact % | no word % | F1 | sentences |", "| --- " * 5 + "|", sep="\n")
    for head in arguments.heads:
        layer, dot, index = head.partition(".")
        name = HeadName("cross", int(layer), int(index)) if dot else None
        aligner = Aligner(name) if dot or head == "mean" else None
        translator = Translator.load(arguments.run, aligner=aligner)
        print(f"| {head} | {measure(translator, chosen, head != 'way')}", flush=True)


if __name__ == "__main__":
    main()
