"""Published corpora: their files, URLs and checksums (``checksums.txt``).

Downloads nothing. Multi30k: Elliott et al. 2016, https://aclanthology.org/W16-3210; its raw and its
tokenised files are two corpora here. Tanaka: the 50,000 pairs of 4 to 16 words of
https://github.com/odashi/small_parallel_enja, from the Tanaka corpus.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transformer.common.errors import InputError


def _checksums() -> dict[str, str]:
    """Return the sha256 of each file of all corpora; their names differ."""
    text = Path(__file__).with_name("checksums.txt").read_text(encoding="utf-8")
    return dict(line.split() for line in text.splitlines() if not line.startswith("#"))


@dataclass(frozen=True, kw_only=True)
class PublishedCorpus:
    """One corpus, with a file for each language of each split."""

    name: str
    """Value of ``data.corpus``."""
    languages: tuple[str, ...]
    """Language codes, which are the suffixes of the files."""
    splits: Mapping[str, str]
    """From the names of the splits here to the stems of the files."""
    suffix: str = ""
    """``.gz`` if the files are gzipped."""
    url: str
    """Folder of the files, with a slash at the end."""
    sha256: Mapping[str, str] = field(default_factory=_checksums)
    """Checksum of each file, and of each part of it."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each file that is published in parts: the parts, to be concatenated."""

    def file_name(self, language: str, split: str) -> str:
        """Return the name of one side of one split.

        Raises:
            InputError: the corpus has no such language.
        """
        if language not in self.languages:
            raise InputError(
                f"{self.name} has no language {language!r}; set data.source and data.target to "
                "two of " + ", ".join(self.languages)
            )
        return f"{self.splits[split]}.{language}{self.suffix}"

    @property
    def file_names(self) -> list[str]:
        """The names of all files."""
        return [self.file_name(code, split) for split in self.splits for code in self.languages]


MULTI30K = PublishedCorpus(
    name="multi30k",
    languages=("en", "de", "fr"),
    splits={"train": "train", "validation": "val", "test": "test_2016_flickr"},
    suffix=".gz",
    url="https://github.com/multi30k/dataset/raw/a3d2e0d/data/task1/raw/",
)

MULTI30K_TOK = PublishedCorpus(
    name="multi30k_tok",
    languages=("en", "de"),
    splits={
        "train": "train.lc.norm.tok",
        "validation": "val.lc.norm.tok",
        "test": "test_2016_flickr.lc.norm.tok",
    },
    # A later commit has another train.lc.norm.tok.en.
    url="https://github.com/multi30k/dataset/raw/7bee46bc74186b4b6254603143610f730d40bf66/data/"
    "task1/tok/",
)

TANAKA_ENJA = PublishedCorpus(
    name="tanaka_enja",
    languages=("en", "ja"),
    splits={"train": "train", "validation": "dev", "test": "test"},
    url="https://github.com/odashi/small_parallel_enja/raw/bc6f160498e5f97a286ff679173e7f6ba9321d9f/",
    parts={
        f"train.{code}": tuple(f"train.{code}.{number:03}" for number in range(5))
        for code in ("en", "ja")
    },
)

PUBLISHED = {corpus.name: corpus for corpus in (MULTI30K, MULTI30K_TOK, TANAKA_ENJA)}
"""By the value of ``data.corpus``."""
