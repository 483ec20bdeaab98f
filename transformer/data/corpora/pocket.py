"""The pocket corpus: made-up English and German text that comes with the package."""

import re
from collections.abc import Iterator
from pathlib import Path

from transformer.common.errors import InputError
from transformer.common.files import PACKAGE
from transformer.data.corpora.split import Split
from transformer.data.text.conllu import TaggedSentence
from transformer.data.text.parallel import Corpus, read_lines

_POCKET_LANGUAGES = {"en", "de"}
_POCKET_SPLITS = ("train", "validation", "test", "test_novel")

# Punctuation and the English genitive are words, written without a space before them.
_WRITTEN_TOGETHER = re.compile(r"(?=[.,?!]|'s\b)")


def _folder() -> Path:
    """Return the folder of pocket, in the installed package or in the checkout."""
    inside = PACKAGE / "pocket"
    return inside if inside.is_dir() else PACKAGE.parent / "data" / "pocket"


def pocket_text(language: str) -> dict[str, Path]:
    """Return the text of each split of pocket, made-up text, in a language."""
    return {split: _folder() / f"{split}.{language}.gz" for split in _POCKET_SPLITS}


def pocket_splits(source: str, target: str) -> dict[str, Split]:
    """Return pocket's splits with their word links; raises InputError for other languages."""
    if {source, target} != _POCKET_LANGUAGES:
        raise InputError(
            "the pocket corpus is English and German; set data.source=en data.target=de, "
            "or the other way round"
        )
    sources, targets, links = pocket_text(source), pocket_text(target), _folder() / "links"
    return {
        split: Split(
            Corpus((sources[split], targets[split]), source, target),
            links=links / f"{split}.{source}-{target}.gz",
        )
        for split in _POCKET_SPLITS
    }


def read_pocket_tags(path: Path, max_line: int | None = None) -> Iterator[TaggedSentence]:
    """Yield the words and tags of a text of `pocket_text`; raises InputError as `read_lines`."""
    tags = read_lines(path.parent / "tags" / path.name, max_line)
    for text, line in zip(read_lines(path, max_line), tags, strict=True):
        words = _WRITTEN_TOGETHER.sub(" ", text).split()
        yield TaggedSentence(tuple(words), tuple(line.split()))
