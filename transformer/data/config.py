"""Settings of a run's text and batches: the keys under ``data.``; reads no file."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range, out_of_range

_NAME = re.compile(r"[\w.+-]+")

_KEYS_OF_FILES = ("root", "train", "validation", "test", "document_key", "alignment", "lang")
# A corpus that is not named here is downloaded, or read from the folder ``root``.
_KEYS_READ = {
    "pocket": (),
    "folder": ("root", "alignment"),
    "files": ("train", "validation", "test", "document_key", "alignment"),
}


@dataclass(frozen=True)
class CorpusConfig:
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
    """Tag before each source, so that the model can distinguish this corpus."""


@dataclass(frozen=True)
class DenoisingConfig:
    """The noise of ``task=denoising`` (encoded/denoising.py)."""

    objective: Literal["spans", "infilling"] = "spans"
    """"spans": a sentinel for each masked span, and the model writes the spans (T5). "infilling": a
    mask for each span, and the model writes the whole text (BART)."""
    density: Annotated[float, Range(above=0, below=1)] = 0.15
    """Fraction of the tokens that is masked; BART has 0.3."""
    mean_span: Annotated[float, Range(1)] = 3.0
    """Mean tokens of a span."""
    permute: bool = False
    """infilling: sentences of a line are in random order."""

    def __post_init__(self) -> None:
        if self.permute and self.objective == "spans":
            raise InputError("data.denoising.permute needs data.denoising.objective=infilling")


@dataclass(frozen=True)
class DataConfig:
    """The keys under ``data.``; a relative path starts at the working directory."""

    corpus: str = "pocket"
    """"pocket" (built in); a published one (``PUBLISHED`` in corpora/catalog.py), downloaded;
    "files" or "folder" (the user's own)."""
    source: str = "en"
    """Language code of the source side; with JSONL, the key of its text."""
    target: str = "de"
    """Language code of the target side; with JSONL, the key of its text."""
    root: str | None = None
    """Downloaded corpora: a folder that has the files; None downloads them. folder: it has
    SPLIT.SOURCE and SPLIT.TARGET, optionally ``.gz``; a missing split is held out."""
    train: str | Sequence[str] | None = None
    """files: [SOURCE, TARGET, other TARGETS…] of plain text, or one TSV or JSONL file, whose target
    may be a list; each may be .gz. With ``streaming``: shards, or globs of shards, also at URLs;
    TSV, JSONL or Parquet, or [SOURCES, TARGETS] of plain text."""
    validation: str | Sequence[str] | None = None
    """files: as ``train``; None holds out ``validation_size`` pairs of the training text."""
    test: str | Sequence[str] | None = None
    """files: as ``train``; None holds out ``test_size`` pairs of the training text."""
    validation_size: Annotated[int, Range(0)] = 1000
    """Pairs held out if there is no validation file: the same for every ``seed`` and in both
    directions. An equal pair is in no split of the corpus."""
    test_size: Annotated[int, Range(0)] = 1000
    """Pairs held out if there is no test file; 0: no test split."""
    batch_tokens: Annotated[int, Range(1)] = 4096
    """Budget of a batch on one device: sentences times the longest side, padding and eos included;
    "auto" in conf/ is the largest budget that fits in the memory of a GPU."""
    max_length: Annotated[int, Range(1)] = 250
    """Pairs with a side of more tokens (without bos and eos) are left out of training and of the
    validation loss, never of the validation or test text."""
    max_line: Annotated[int, Range(1)] = 1_000_000
    """Maximum bytes of a line of text; a longer line is an error."""
    max_ratio: Annotated[float, Range(1)] | None = 8.0
    """Training pairs with a larger ratio of the tokens of their sides are left out; None: none."""
    max_left_out: Annotated[float, Range(0, 1)] = 0.5
    """Maximum fraction of the training pairs, without repeated pairs, that is left out; more is an
    error. Above a tenth, the log warns. With ``streaming``, there is only the warning."""
    deduplicate: bool = True
    """Keep only the first of equal training pairs; with ``streaming``, within one buffer."""
    streaming: bool = False
    """Read the training text again in each epoch, without a copy on disk."""
    buffer: Annotated[int, Range(1)] = 100_000
    """streaming: pairs that are read, shuffled and cut into batches together."""
    prepare_workers: Annotated[int, Range(0)] | None = None
    """Processes that encode a large training text; None: one for each core, 0: only the training
    process. The result does not depend on it."""
    workers: Annotated[int, Range(0)] = 0
    """Processes that make batches; 0: the training process does. With ``streaming``, another
    process reads the next buffer unless this is 0."""
    seed: int = 1
    """Seed of the order of the batches and of the sampled segmentations."""
    cache: str = field(default_factory=lambda: os.environ.get("TRANSFORMER_CACHE", ".cache"))
    """Folder of all derived files: downloads, vocabularies, encoded text."""
    alignment: str | None = None
    """Word links of the training text, a line such as "0-0 1-2" for each pair."""
    corpora: Mapping[str, CorpusConfig] | None = None
    """Several corpora by name, instead of one; an entry without a key takes the value from here."""
    temperature: Annotated[float, Range(0.05)] | None = None
    """Several corpora without weights: the fraction of a corpus is proportional to its size to the
    power of 1/temperature; None is 1 (Arivazhagan et al. 2019, section 4.1, arXiv 1907.05019)."""
    target_tag: bool | Literal["both"] = False
    """Add a tag of the target language before each source: one model, many directions. ``both``:
    a tag of its language before each source and each target (``Tags.both_sides``)."""
    documents: Annotated[int, Range(1)] | None = None
    """Join up to this many consecutive sentences of a document to one pair, and to one translation,
    of at most ``max_length`` tokens; a line that is blank on both sides separates documents."""
    document_key: str | None = None
    """JSONL: a key whose value changes where another document begins."""
    packing: Literal[False] = False
    """A key of earlier versions; their runs have it."""
    lang: str | None = None
    """Part of a published corpus: a language (g2p, inflection), or a split of scan."""
    features: str | None = None
    """``tokenizer.features``: unless None, a TSV file is SOURCE, FEATURES, TARGET."""
    repeated_sources: bool = False
    """Evaluation texts: the targets of equal sources are references of one source, and are held out
    together (not with several directions of one text)."""
    denoising: DenoisingConfig = DenoisingConfig()
    """The noise of ``task=denoising``."""

    def __post_init__(self) -> None:
        raise_objections(_objections(self))


def _objections(config: DataConfig) -> Iterator[str]:
    corpora = config.corpora or {}
    yield from out_of_range(config, "data")
    yield from out_of_range(config.denoising, "data.denoising")
    for name, corpus in corpora.items():
        yield from out_of_range(corpus, f"data.corpora.{name}")
    yield from _bad_names(config, corpora)
    if config.corpora is not None and not corpora:
        yield "data.corpora={} names none; give NAME:{train:…} for each"
    single = not corpora and not config.target_tag and (config.documents or 1) == 1
    if config.streaming and not (single and config.corpus == "files" and config.alignment is None):
        yield (
            "data.streaming=true reads files of one corpus of single sentences without tags or "
            "links; set data=files data.corpora=null data.documents=null data.target_tag=false "
            "data.alignment=null, or data.streaming=false"
        )
    if not corpora and config.document_key is not None and config.documents is None:
        yield "data.document_key needs data.documents=N"
    missing = [name for name, corpus in corpora.items() if corpus.weight is None]
    if 0 < len(missing) < len(corpora):
        yield f"data.corpora.{missing[0]}.weight is missing; give a weight to each corpus, or none"


def _bad_names(config: DataConfig, corpora: Mapping[str, CorpusConfig]) -> Iterator[str]:
    names = [("data.target", config.target if config.target_tag else None)]
    for name, corpus in corpora.items():
        target = corpus.target if config.target_tag else None
        where = f"data.corpora.{name}"
        names += [("data.corpora", name), (f"{where}.tag", corpus.tag), (f"{where}.target", target)]
    for key, used in names:
        if used is not None and not _NAME.fullmatch(used):
            yield f"{key}={used!r} cannot be a name or tag; use letters, digits and ._+-"


def unused_keys(config: DataConfig) -> list[str]:
    """Return the keys that name files or their contents and that this kind of corpus ignores."""
    read = _KEYS_READ.get(config.corpus, ("root", "alignment", "lang"))
    return [k for k in _KEYS_OF_FILES if k not in read and getattr(config, k) is not None]


def check_unused_keys(config: DataConfig) -> None:
    """Raise an InputError if the config names a text that its kind of corpus does not read."""
    unused = unused_keys(config)
    kind = "folder" if unused == ["root"] else "files"
    raise_objections(
        f"data.{key} is not read with data.corpus={config.corpus}; set data={kind}, or leave "
        f"data.{key} out"
        for key in unused
    )
