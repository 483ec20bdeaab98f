"""Settings of a run's text and batches: the keys under ``data.`` and ``augmentation.``."""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Literal

from transformer.common.errors import raise_objections
from transformer.common.schema import Range, Settings
from transformer.settings.sources import (
    STRIDES,
    FrontEndName,
    ImageConfig,
    SourceConfig,
    SourceKind,
    SpeechConfig,
    VectorsConfig,
)

BUDGET_STEP = 1024
"""Automatic budgets are multiples of this, so that similar devices get the same budget."""

_FILES_BUFFER = 5_000
"""Files of a buffer of a stream at most; a second of sound has 32 kB."""

_NAME = re.compile(r"[\w.+-]+")

_KEYS_OF_FILES = ("root", "train", "validation", "test", "document_key", "alignment", "lang")
# A corpus that is not named here is downloaded, or read from the folder ``root``.
_KEYS_READ = {
    "pocket": (),
    "folder": ("root", "alignment"),
    "files": ("train", "validation", "test", "document_key", "alignment"),
}


@dataclass(frozen=True)
class CorpusConfig(Settings, group="data.corpora"):
    """One of several corpora; a key that is None has the value under ``data.`` (`DataConfig`)."""

    corpus: str | None = None
    source: str | None = None
    target: str | None = None
    root: str | None = None
    lang: str | None = None
    train: str | Sequence[str] | None = None
    validation: str | Sequence[str] | None = None
    test: str | Sequence[str] | None = None
    validation_size: Annotated[int, Range(0)] | None = None
    test_size: Annotated[int, Range(0)] | None = None
    alignment: str | None = None
    documents: Annotated[int, Range(1)] | None = None
    document_key: str | None = None
    weight: Annotated[float, Range(above=0)] | None = None
    """Its fraction of the batches is its weight divided by the sum of all weights; None: by
    ``data.temperature``."""
    tag: str | None = None


@dataclass(frozen=True)
class DenoisingConfig(Settings, group="data.denoising"):
    """The noise of ``task=denoising`` (datamodules/denoising.py)."""

    objective: Literal["spans", "infilling"] = "spans"
    """"spans": a sentinel for each masked span, and the model writes the spans (T5). "infilling": a
    mask for each span, and the model writes the whole text (BART)."""
    density: Annotated[float, Range(above=0, below=1)] = 0.15
    mean_span: Annotated[float, Range(1)] = 3.0
    permute: bool = False

    def _objections(self) -> Iterator[str]:
        if self.permute and self.objective == "spans":
            yield "data.denoising.permute needs data.denoising.objective=infilling"


@dataclass(frozen=True)
class DataConfig(Settings, group="data"):
    """The keys under ``data.``; ``conf/data/base.yaml`` has a line about each."""

    corpus: str = "pocket"
    """"pocket" (built in); a published one (``PUBLISHED`` in corpora/catalog.py), downloaded;
    "files" or "folder" (the user's own)."""
    source: str = "en"
    """Language code of the source side; with JSONL and Parquet, the key of its text."""
    target: str = "de"
    """Language code of the target side; with JSONL and Parquet, the key of its text."""
    source_kind: SourceKind = "text"
    """"speech", "image", "vectors": a source is the path of a file, beside the file that names it,
    and becomes a sequence of vectors (data/features)."""
    speech: SpeechConfig = field(default_factory=SpeechConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    root: str | None = None
    train: str | Sequence[str] | None = None
    """files: [SOURCE, TARGET, other TARGETS…] of plain text, or one TSV, JSONL or Parquet file. A
    target may be a list in JSONL and Parquet; all but Parquet may be .gz. With ``streaming``:
    shards, or globs of shards, also at URLs; TSV, JSONL or Parquet, or [SOURCES, TARGETS] of plain
    text."""
    validation: str | Sequence[str] | None = None
    test: str | Sequence[str] | None = None
    validation_size: Annotated[int, Range(0)] = 1000
    """Pairs held out if there is no validation file: the same for every ``seed`` and in both
    directions. An equal pair is in no split of the corpus."""
    test_size: Annotated[int, Range(0)] = 1000
    batch_tokens: Annotated[int, Range(1)] | Literal["auto"] = 4096
    """Budget of a batch, in tokens of a side with its padding. "auto" is measured (`budget`)."""
    batch_shapes: Annotated[int, Range(0)] = 0
    """Pad training batches to so many shapes at most; 0: each to its longest sentences."""
    max_length: Annotated[int, Range(1)] = 250
    """Pairs with a side of more tokens (without bos and eos) are left out of training and of the
    validation loss, never of the validation or test text."""
    max_line: Annotated[int, Range(1)] = 1_000_000
    max_ratio: Annotated[float, Range(1)] | None = 8.0
    max_left_out: Annotated[float, Range(0, 1)] = 0.5
    deduplicate: bool = True
    streaming: bool = False
    buffer: Annotated[int, Range(1)] = 100_000
    prepare_workers: Annotated[int, Range(0)] | None = None
    workers: Annotated[int, Range(0)] = 0
    seed: int = 1
    cache: str = field(default_factory=lambda: os.environ.get("TRANSFORMER_CACHE", ".cache"))
    alignment: str | None = None
    corpora: Mapping[str, CorpusConfig] | None = None
    temperature: Annotated[float, Range(0.05)] | None = None
    """Several corpora without weights: the fraction of a corpus is proportional to its size to the
    power of 1/temperature; None is 1 (Arivazhagan et al. 2019, section 4.1, arXiv 1907.05019)."""
    target_tag: bool | Literal["both"] = False
    documents: Annotated[int, Range(1)] | None = None
    """Join up to this many consecutive sentences of a document to one pair, and to one translation,
    of at most ``max_length`` tokens; a line that is blank on both sides separates documents."""
    document_key: str | None = None
    lang: str | None = None
    features: str | None = None
    repeated_sources: bool = False
    denoising: DenoisingConfig = DenoisingConfig()

    def _objections(self) -> Iterator[str]:
        corpora = self.corpora or {}
        yield from self._bad_names()
        yield from self._bad_source()
        if self.corpora is not None and not corpora:
            yield "data.corpora={} names none; give NAME:{train:…} for each"
        plain = not corpora and not self.target_tag and (self.documents or 1) == 1
        if self.streaming and not (plain and self.corpus == "files" and self.alignment is None):
            yield (
                "data.streaming=true reads files of one corpus of single sentences without tags or "
                "links; set data=files data.corpora=null data.documents=null data.target_tag=false "
                "data.alignment=null, or data.streaming=false"
            )
        if not corpora and self.document_key is not None and self.documents is None:
            yield "data.document_key needs data.documents=N"
        unweighted = [name for name, corpus in corpora.items() if corpus.weight is None]
        if 0 < len(unweighted) < len(corpora):
            yield (
                f"data.corpora.{unweighted[0]}.weight is missing; give a weight to each corpus, or "
                "to none"
            )

    def _bad_source(self) -> Iterator[str]:
        """Object to what only text can be, where the source is a file."""
        if self.source_kind == "vectors" and not self.vectors.channels:
            yield "data.source_kind=vectors needs data.vectors.channels=N, the width of the arrays"
        if self.source_kind == "text":
            return
        text_options = {
            "documents": self.documents,
            "document_key": self.document_key,
            "features": self.features,
            "alignment": self.alignment,
            "target_tag": None if self.target_tag == "both" else self.target_tag or None,
        }
        for name, corpus in (self.corpora or {}).items():
            corpus_keys = ("tag", "documents", "document_key", "alignment")
            text_options |= {f"corpora.{name}.{key}": getattr(corpus, key) for key in corpus_keys}
        for key, value in text_options.items():
            if value is not None:
                yield (
                    f"data.{key} is of source text, and data.source_kind={self.source_kind}; "
                    "leave one of them out"
                )
        if self.streaming and self.buffer > _FILES_BUFFER:
            yield (
                f"data.buffer={self.buffer}: a stream holds so many files in memory; set "
                f"data.buffer={_FILES_BUFFER} or less"
            )
        is_stored_sound = self.source_kind == "speech" and not self.streaming
        if self.speech.speeds != (1.0,) and not is_stored_sound:
            yield "data.speech.speeds is of sound that is no stream; set it to [1.0]"
        if self.corpus not in ("files", "folder"):
            yield (
                f"data.corpus={self.corpus} has source text, and data.source_kind="
                f"{self.source_kind}; set data=files data.train=PAIRS.tsv"
            )

    def source_config(self, front_end: FrontEndName | None) -> SourceConfig | None:
        """How sources become the vectors that this front end reads; None if they are text."""
        if self.source_kind == "text" or front_end is None:
            return None
        return SourceConfig(
            kind=self.source_kind,
            stride=STRIDES[front_end],
            speech=self.speech,
            image=self.image,
            vectors=self.vectors,
        )

    def _bad_names(self) -> Iterator[str]:
        """Object to names and tags that have other characters than letters, digits and ._+-."""
        names = [("data.target", self.target if self.target_tag else None)]
        for name, corpus in (self.corpora or {}).items():
            key = f"data.corpora.{name}"
            names += [
                ("data.corpora", name),
                (f"{key}.tag", corpus.tag),
                (f"{key}.target", corpus.target if self.target_tag else None),
            ]
        for key, used in names:
            if used is not None and not _NAME.fullmatch(used):
                yield f"{key}={used!r} cannot be a name or tag; use letters, digits and ._+-"

    @property
    def filtered_ratio(self) -> float | None:
        """``max_ratio``; of files None: how many vectors a word takes tells nothing of a pair."""
        return self.max_ratio if self.source_kind == "text" else None

    @property
    def budget(self) -> int:
        """``batch_tokens``; while "auto" is not measured, the smallest that holds one pair."""
        if self.batch_tokens != "auto":
            return self.batch_tokens
        return math.ceil((1 + self.max_length) / BUDGET_STEP) * BUDGET_STEP

    @property
    def language_pairs(self) -> frozenset[tuple[str, str]]:
        """The directions of all corpora, such as ``("en", "de")``."""
        corpora = (self.corpora or {"": CorpusConfig()}).values()
        return frozenset(
            (corpus.source or self.source, corpus.target or self.target) for corpus in corpora
        )


def unused_keys(config: DataConfig) -> list[str]:
    """Return the keys that name files or their contents and that this kind of corpus ignores."""
    read = _KEYS_READ.get(config.corpus, ("root", "alignment", "lang"))
    return [key for key in _KEYS_OF_FILES if key not in read and getattr(config, key) is not None]


def check_unused_keys(config: DataConfig) -> None:
    """Raise an InputError if the config names a text that its kind of corpus does not read."""
    unused = unused_keys(config)
    kind = "folder" if unused == ["root"] else "files"
    raise_objections(
        f"data.{key} is not read with data.corpus={config.corpus}; set data={kind}, or leave "
        f"data.{key} out"
        for key in unused
    )


Probability = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class AugmentationConfig(Settings, group="augmentation"):
    """Probabilities of disturbances, at most one a pair (``conf/augmentation/none.yaml``)."""

    upper: Probability = 0.0
    title: Probability = 0.0
    lower: Probability = 0.0
    typos: Probability = 0.0
    punctuation: Probability = 0.0
    blanks: Probability = 0.0
    emoji: Probability = 0.0
    noise: Probability = 0.0
    joined: Probability = 0.0

    def _objections(self) -> Iterator[str]:
        total = sum(astuple(self))
        if total > 1 + 1e-9:
            yield (
                f"the probabilities of augmentation have the sum {total:.3g}; at most one changes "
                "a pair, so give numbers with a sum of at most 1"
            )

    @property
    def active(self) -> bool:
        return any(astuple(self))
