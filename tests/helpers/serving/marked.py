"""A service of marked texts without a model: each sentence is translated by a function."""

from collections.abc import Callable, Mapping, Sequence

from tests.helpers.decoding.translators import tiny_translator
from transformer.serving.batch_translation import Options, SentenceTranslation, TextTranslation
from transformer.serving.formats.marked_text import Translate
from transformer.serving.languages import Direction
from transformer.serving.sentences import plain_blanks, split_sentences

Words = Callable[[list[str]], tuple[list[str], list[tuple[int, int]]]]
"""From the words of a sentence to those of its translation, and the links between them."""


def service(words: Words) -> Translate:
    """Translates words; links are true ones."""

    def sentence(text: str, links: bool) -> SentenceTranslation:
        text = plain_blanks(text)
        target, found = words([word for word in text.split(" ") if word])
        return SentenceTranslation(text, " ".join(target), links=tuple(found) if links else None)

    async def translate(texts: Sequence[str], options: Options) -> list[TextTranslation]:
        split = (split_sentences(text, "en", options.splitting) for text in texts)
        return [
            TextTranslation(tuple((part, sentence(part.sentence, options.links)) for part in parts))
            for parts in split
        ]

    return translate


def options() -> Options:
    """Those of a direction; its model is not asked."""
    return Options(Direction("en", "de", tiny_translator()))


def repeat(words: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """The source."""
    return words, [(index, index) for index in range(len(words))]


def upper_case(words: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """Each word in its place."""
    return [word.upper() for word in words], repeat(words)[1]


def dictionary(entries: Mapping[str, str], order: Mapping[int, Sequence[int]]) -> Words:
    """A translation word by word.

    Args:
        entries: The translation of a word, which may be several or none; others get upper case.
        order: Of the source words in the translation, for a number of words.
    """

    def translate(words: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
        target: list[str] = []
        links: list[tuple[int, int]] = []
        for index in order.get(len(words), range(len(words))):
            core = words[index].strip(".,!?()")
            became = (
                words[index].replace(core, entries.get(core, core.upper()))
                if core
                else words[index]
            )
            for word in became.split():
                links.append((index, len(target)))
                target.append(word)
        return target, links

    return translate
