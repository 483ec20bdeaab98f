"""The texts to examine, unchanged, and the lines of their pairs."""

from collections.abc import Iterator
from dataclasses import replace

from transformer.common.errors import InputError
from transformer.data.config import DataConfig
from transformer.data.corpora.resolve import as_files, find_corpus_splits
from transformer.data.corpora.split import Split
from transformer.data.quality.base import NumberedPair, Side
from transformer.data.text.parallel import SEPARATOR, AnotherTarget


def given_texts(data: DataConfig) -> dict[str, Split]:
    """Return the texts of a corpus; no pair is held out, and none gets a tag."""
    if data.corpus == "folder":
        data = as_files(data)
    if data.corpus == "files":
        # Without its key, no separators are put between the documents of JSONL.
        data = replace(data, validation_size=0, test_size=0, document_key=None, target_tag=False)
    texts = find_corpus_splits(data)
    for name, text in texts.items():
        if next(numbered(text), None) is None:
            files = ", ".join(map(str, text.corpus.paths))
            raise InputError(f"{files}: the {name} text has no line; give another data.{name}")
    return texts


def numbered(split: Split) -> Iterator[NumberedPair]:
    """Yield the pairs of a split in the order of its corpus, without token counts.

    Blank pairs that separate documents are left out; inserted separators have no line.
    """
    line = 0
    for index, pair in enumerate(split.corpus):
        if pair is SEPARATOR:
            continue
        line += not isinstance(pair[1], AnotherTarget)
        if (index in split.lines) is not split.inverted and (
            split.sentences == 1 or any(text.strip() for text in pair)
        ):
            yield NumberedPair(line, *pair)


def line_location(split: Split, side: Side | None, line: int) -> str:
    """Return ``FILE:LINE``, with the file of the side, or the first file if side is None."""
    return f"{split.corpus.paths[-1 if side == 'target' else 0]}:{line}"
