"""The pocket corpus: generated English and German text, part of the package."""

from pathlib import Path

from transformer.common.errors import InputError
from transformer.common.files import PACKAGE
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus

_POCKET_LANGUAGES = {"en", "de"}
_POCKET_SPLITS = ("train", "validation", "test", "test_novel")


def _folder() -> Path:
    inside = PACKAGE / "pocket"
    return inside if inside.is_dir() else PACKAGE.parent / "data" / "pocket"


def pocket_text(language: str) -> dict[str, Path]:
    """Return the text of each split of pocket in a language."""
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
