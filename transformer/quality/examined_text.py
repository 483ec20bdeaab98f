"""The texts to examine, unchanged, and the locations of their lines."""

from dataclasses import replace

from transformer.common.errors import InputError
from transformer.data.corpora.resolve import as_files, find_corpus_splits
from transformer.data.corpora.split import Split, numbered
from transformer.quality.check import Side
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


def line_location(split: Split, side: Side | None, line: int) -> str:
    """Return ``FILE:LINE``: the file of the side, or for None the file of the source."""
    return f"{split.corpus.paths[-1 if side == 'target' else 0]}:{line}"
