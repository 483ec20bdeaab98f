"""How often a tag is around the right words of a translation.

    python benchmarks/markup.py RUN [--split test] [--heads mean 2.1 ...]

Each sentence of pocket has a <b> around a random word or phrase of its source. A translation counts
that equals the reference, whose gold links tell which words the tag must be around; phrases whose
words are not neighbours in the reference are left out. ``run`` reads links as the run does (its
guided head, or the mean of all heads above layer 0); other heads are LAYER.HEAD.

Prints a table: exactly the right words, no word at all, and F1 over words. ``way`` has no links: a
word goes to the same part of the way through the sentence.
"""

import argparse
import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from transformer.data.corpora.pocket import pocket_splits
from transformer.decoding.alignment import Aligner
from transformer.decoding.translation.translator import Translator
from transformer.model.heads import HeadName
from transformer.serving.formats.blocks import Rules
from transformer.serving.formats.markup import translate_markup
from transformer.serving.languages.directions import Direction
from transformer.serving.languages.sentences import Part
from transformer.serving.translations import (
    Options,
    Sentence,
    TextTranslation,
    translate_batch,
)

LENGTHS = (1, 1, 2, 3)
"""Words of a phrase; one of these is drawn."""

TAG = re.compile(r"</?b>")


class Example(NamedTuple):
    """A source with a tag, its reference, and the target words that the tag must be around."""

    source: str
    reference: str
    words: frozenset[int]


def examples(split: str) -> Iterator[Example]:
    """A random phrase of each sentence whose translation is one phrase, too."""
    chosen = random.Random(0)
    text = pocket_splits("en", "de")[split]
    for (source, reference), links in zip(text, text.word_links(), strict=True):
        words = source.split()
        length = min(chosen.choice(LENGTHS), len(words))
        first = chosen.randrange(len(words) - length + 1)
        phrase = range(first, first + length)
        inside = {target for word, target in links.possible if word in phrase}
        outside = {target for word, target in links.possible if word not in phrase}
        if inside and not outside & set(range(min(inside), max(inside) + 1)):
            words[first] = "<b>" + words[first]
            words[first + length - 1] += "</b>"
            yield Example(" ".join(words), reference, frozenset(inside))


class Sentences:
    """A service whose texts are sentences: all of them in one call of the model."""

    def __init__(self, use_links: bool) -> None:
        self._use_links = use_links

    async def translate(
        self, texts: Sequence[str], options: Options, **_: Any
    ) -> list[TextTranslation]:
        """The translation of each text."""
        found = translate_batch(options, [Sentence(text) for text in texts])
        if not self._use_links:
            found = [replace(one, links=None) for one in found]
        return [
            TextTranslation(((Part("", text), one),))
            for text, one in zip(texts, found, strict=True)
        ]


def words_inside(marked: str) -> frozenset[int]:
    """The words of which a letter is in the tag."""
    before, inside, _ = TAG.split(marked)
    letters = [
        len((before + inside[:index] + "x").split()) - 1
        for index, letter in enumerate(inside)
        if letter.isalnum()
    ]
    return frozenset(letters)


def measure(translator: Translator, chosen: Sequence[Example], use_links: bool) -> str:
    """A row of the table."""
    options = Options(Direction("en", "de", translator))
    work = translate_markup(
        Sentences(use_links), [one.source for one in chosen], options, Rules(), splitting="none"
    )
    exact = empty = common = given = wanted = count = 0
    for example, marked in zip(chosen, asyncio.run(work), strict=True):
        if TAG.sub("", marked) != example.reference:
            continue
        words = words_inside(marked)
        count += 1
        exact += words == example.words
        empty += not words
        common += len(words & example.words)
        given += len(words)
        wanted += len(example.words)
    f1 = 200 * common / (given + wanted)
    return f"{100 * exact / count:.1f} | {100 * empty / count:.1f} | {f1:.1f} | {count} |"


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
        aligner = Aligner() if head == "mean" else None
        if dot:
            aligner = Aligner(HeadName("cross", int(layer), int(index)))
        translator = Translator.load(arguments.run, aligner=aligner)
        print(f"| {head} | {measure(translator, chosen, head != 'way')}", flush=True)


if __name__ == "__main__":
    main()
