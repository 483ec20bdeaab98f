"""Everything a run can say about its text, its batches and its subwords.

Does not read files, and holds no defaults: these stand in conf/data/ and conf/tokenizer/.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transformer.common.errors import InputError, raise_objections

# What is smaller leaves only the largest corpus, and powers that no number holds.
_LEAST_TEMPERATURE = 0.05
_NAME = re.compile(r"[\w.+-]+")


@dataclass(frozen=True)
class CorpusConfig:
    """One of several corpora: what it says goes before what ``data`` says for all."""

    corpus: str | None = None
    """See DataConfig, as for all that is not explained here."""
    source: str | None = None
    target: str | None = None
    root: str | None = None
    train: str | Sequence[str] | None = None
    validation: str | Sequence[str] | None = None
    test: str | Sequence[str] | None = None
    validation_size: int | None = None
    test_size: int | None = None
    alignment: str | None = None
    documents: int | None = None
    """As DataConfig's; 1 for a corpus of single sentences among others of documents."""
    document_key: str | None = None
    weight: float | None = None
    """Its share of the batches is its weight among all; None: ``data.temperature`` decides."""
    tag: str | None = None
    """Stands before each source, and tells this corpus from others; None: nothing does."""


@dataclass(frozen=True)
class DataConfig:
    """The keys under ``data.``; a relative path starts where the command was started."""

    corpus: str
    """"pocket" (built in); "multi30k", "multi30k_tok" or "tanaka_enja" (fetched);
    "files" or "folder" (the user's own)."""
    source: str
    """Language code of the source side; with JSONL, the key of its text."""
    target: str
    """Language code of the target side; with JSONL, the key of its text."""
    root: str | None
    """What is fetched: a folder that has the files already, packed or not; None fetches them.
    folder: it holds ``train``, ``valid`` (or ``validation``, ``val``, ``dev``) and ``test``, each
    with ``.SOURCE`` and ``.TARGET``, and perhaps ``.gz``; what is not there is held out."""
    train: str | Sequence[str] | None
    """files: [SOURCE, TARGET] of plain text, or one TSV or JSONL file; each may be .gz. With
    ``streaming``: shards, or globs of shards, local or at URLs that fsspec opens; TSV, JSONL or
    Parquet, or [SOURCES, TARGETS] of plain text."""
    validation: str | Sequence[str] | None
    """files: as ``train``; None holds ``validation_size`` pairs of the training text out."""
    test: str | Sequence[str] | None
    """files: as ``train``; None holds ``test_size`` pairs of the training text out."""
    validation_size: int
    """Pairs held out where there is no validation file: the same whatever ``seed`` says, and in
    both directions; a pair that equals one of them is in no split of that corpus."""
    test_size: int
    """Pairs held out likewise, where there is no test file; 0 goes without."""
    held_out_by: str
    """What tells which pairs those are: "content". "seed" stands in checkpoints of format 6 and
    older, whose held-out pairs cannot be told any more."""
    batch_tokens: int
    """Budget of a batch on one device: rows times the longest side, padding and eos included;
    "auto" in conf/ stands for the largest that the memory of a GPU allows."""
    max_length: int
    """Training pairs with a side of more tokens (bos and eos apart) are left out. So they are of
    the validation loss, but never of the validation or test text."""
    max_line: int
    """Bytes of the longest line that is read of a text; a longer one is an error."""
    max_ratio: float | None
    """Training pairs with more tokens of one side for one of the other are left out."""
    max_left_out: float
    """Share of the training pairs, repeated ones apart, that may be left out: more is an error.
    Of more than a tenth the log warns; with ``streaming`` it does no more."""
    deduplicate: bool
    """Keep only the first of equal training pairs; with ``streaming``, of those in one buffer."""
    streaming: bool
    """Read the training text again in each epoch, and keep nothing of it: no copy on the disk."""
    buffer: int
    """streaming: pairs that are read, shuffled and cut into batches together."""
    prepare_workers: int | None
    """Processes that cut a large training text into pieces; None: one for each core, 0: none but
    the training process. What they make is the same for any number."""
    workers: int
    """Processes that make batches beside the training process; 0 makes them in it. With
    ``streaming``, any but 0 also let a process more read the next buffer meanwhile."""
    seed: int
    """Of the order of the batches and the drawn segmentations."""
    cache: str
    """Folder of everything derived: fetched files, vocabularies, encoded text."""
    alignment: str | None
    """All but pocket: word links of the training text, a line such as "0-0 1-2" for each pair
    (source-target, words counted from 0, parted by spaces); what is held out takes its lines
    along. The pocket corpus has its own."""
    corpora: Mapping[str, CorpusConfig] | None
    """Several corpora by name, in place of one. What an entry does not say, ``data`` says."""
    temperature: float | None
    """Of the shares of several corpora without weights: the share is as the size (batches of an
    epoch) to the power of 1/temperature; 1, and None, take all as it comes, larger favours the
    small (Arivazhagan et al. 2019, section 4.1, https://arxiv.org/abs/1907.05019)."""
    target_tag: bool
    """Put a tag of the target language before each source: one model, many directions."""
    documents: int | None
    """Join up to so many consecutive sentences of a document to one pair, and to one translation,
    of at most ``max_length`` tokens; a line that is blank on both sides parts documents."""
    document_key: str | None
    """JSONL: a key whose value changes where another document begins."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself or would do nothing.

        Raises:
            InputError: there is such a thing.
        """
        raise_objections(_objections(self))


def _out_of_range(config: DataConfig) -> Iterator[str]:
    for name, least in (
        *(("batch_tokens", 1), ("max_length", 1), ("max_line", 1), ("workers", 0)),
        *(("validation_size", 0), ("test_size", 0)),
    ):
        if getattr(config, name) < least:
            yield f"data.{name}={getattr(config, name)} must be at least {least}"
    if config.prepare_workers is not None and config.prepare_workers < 0:
        yield f"data.prepare_workers={config.prepare_workers} must be at least 0, or null"
    if config.max_ratio is not None and config.max_ratio < 1:
        yield (
            f"data.max_ratio={config.max_ratio} leaves out every pair; set 1 (sides of equal "
            "length alone) or more, or null to leave out none"
        )
    if not 0 <= config.max_left_out <= 1:
        yield f"data.max_left_out={config.max_left_out} must be a share, from 0 to 1 (allows all)"
    if config.held_out_by not in ("content", "seed"):
        yield f"data.held_out_by={config.held_out_by} is unknown; leave it out"


def _objections(config: DataConfig) -> Iterator[str]:
    yield from _out_of_range(config)
    if config.target_tag and not _NAME.fullmatch(config.target):
        yield f"data.target={config.target!r} cannot be a tag; use letters, digits and ._+-"
    if config.documents is not None and config.documents < 1:
        yield f"data.documents={config.documents} must be at least 1; null joins none"
    if config.streaming and (config.corpora is not None or (config.documents or 1) > 1):
        yield (
            "data.streaming=true reads one corpus of single sentences; leave data.corpora and "
            "data.documents out, or set data.streaming=false"
        )
    if config.streaming and config.target_tag:
        yield (
            "data.streaming=true puts no tags before its text; set data.target_tag=false or "
            "data.streaming=false"
        )
    if config.corpora is not None:
        yield from _objections_to_all(config.corpora, config.temperature)
        yield from _objections_to_targets(config.corpora) if config.target_tag else ()
    elif config.temperature is not None:
        yield "data.temperature is of several corpora; set data.corpora={NAME:{train:…},…} too"
    elif config.document_key is not None and config.documents is None:
        yield "data.document_key does nothing alone; set data.documents=N too"


def _objections_to_all(
    corpora: Mapping[str, CorpusConfig], temperature: float | None
) -> Iterator[str]:
    if not corpora:
        yield "data.corpora={} names none; give NAME:{train:…} for each"
    if temperature is not None and temperature < _LEAST_TEMPERATURE:
        yield f"data.temperature={temperature} must be at least {_LEAST_TEMPERATURE}"
    for name, corpus in corpora.items():
        yield from _objections_to(name, corpus)
    without = [name for name, corpus in corpora.items() if corpus.weight is None]
    if len(without) == len(corpora):
        return
    if temperature is not None:
        yield "data.temperature and the weights of data.corpora both set the shares; leave one out"
    if without:
        yield f"data.corpora.{without[0]}.weight is missing; give a weight to each corpus, or none"


def _objections_to(name: str, corpus: CorpusConfig) -> Iterator[str]:
    where = f"data.corpora.{name}"
    if not _NAME.fullmatch(name):
        yield f"data.corpora: {name!r} cannot be a name; use letters, digits and ._+-"
    if corpus.tag is not None and not _NAME.fullmatch(corpus.tag):
        yield f"{where}.tag={corpus.tag!r} cannot be a tag; use letters, digits and ._+-"
    if corpus.weight is not None and corpus.weight <= 0:
        yield f"{where}.weight={corpus.weight} must be above 0"
    for key, least in (("documents", 1), ("validation_size", 0), ("test_size", 0)):
        if (number := getattr(corpus, key)) is not None and number < least:
            yield f"{where}.{key}={number} must be at least {least}"


def _objections_to_targets(corpora: Mapping[str, CorpusConfig]) -> Iterator[str]:
    for name, corpus in corpora.items():
        if corpus.target is not None and not _NAME.fullmatch(corpus.target):
            yield (
                f"data.corpora.{name}.target={corpus.target!r} cannot be a tag; use letters, "
                "digits and ._+-"
            )


def check_not_streaming(data: DataConfig, task: str) -> None:
    """Refuse what only translation can do.

    Raises:
        InputError: the text is to be streamed.
    """
    if data.streaming:
        raise InputError(
            f"data.streaming=true is for task=translation, not task={task}; set "
            "data.streaming=false"
        )
