"""The texts to examine, unchanged, and the line numbers of their pairs."""

from collections.abc import Iterator
from dataclasses import replace

from transformer.common.errors import InputError
from transformer.data.corpora.resolve import as_files, find_corpus_splits
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import SEPARATOR, AnotherTarget
from transformer.quality.base import NumberedPair, Side
from transformer.settings.data import DataConfig


def given_texts(data: DataConfig) -> dict[str, Split]:
    """Return the texts of a corpus by split, without tags; InputError if one has no line."""
    if data.corpus == "folder":
        data = as_files(data)
    if data.corpus == "files":
        # Without document_key, the corpus has no separators between documents.
        data = replace(data, validation_size=0, test_size=0, document_key=None, target_tag=False)
    texts = find_corpus_splits(data)
    for name, text in texts.items():
        if next(numbered(text), None) is None:
            files = ", ".join(map(str, text.corpus.paths))
            raise InputError(f"{files}: the {name} text has no line; give another data.{name}")
    return texts


def numbered(split: Split) -> Iterator[NumberedPair]:
    """Yield the pairs of a split with line numbers, without those that separate documents."""
    line = 0
    for index, pair in enumerate(split.corpus):
        if pair is SEPARATOR:
            continue
        # Another target is on the line of the pair before.
        if not isinstance(pair[1], AnotherTarget):
            line += 1
        in_split = (index in split.lines) is not split.inverted
        separates = split.sentences != 1 and not any(text.strip() for text in pair)
        if in_split and not separates:
            yield NumberedPair(line, *pair)


def line_location(split: Split, side: Side | None, line: int) -> str:
    """Return ``FILE:LINE``: the file of the side, or for None the file of the source."""
    return f"{split.corpus.paths[-1 if side == 'target' else 0]}:{line}"
