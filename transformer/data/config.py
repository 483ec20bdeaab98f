"""DataConfig: everything a run can say about its corpus and its batches.

Does not read files, and holds no defaults: these stand in conf/data/.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DataConfig:
    """The keys under ``data.``; a relative path starts where the command was started."""

    corpus: str
    """"pocket" (made from a grammar), "multi30k" (fetched) or "files" (the user's own)."""
    source: str
    """Language code of the source side; with JSONL, the key of its text."""
    target: str
    """Language code of the target side; with JSONL, the key of its text."""
    root: str | None
    """multi30k: a folder that has the files already; None fetches them."""
    train: str | Sequence[str] | None
    """files: [SOURCE, TARGET] of plain text, or one TSV or JSONL file; each may be .gz."""
    validation: str | Sequence[str] | None
    """files: as ``train``; None holds ``validation_size`` pairs of the training text out."""
    test: str | Sequence[str] | None
    """files: as ``train``; None holds ``test_size`` pairs of the training text out."""
    validation_size: int
    """Pairs held out, drawn with ``seed``, where there is no validation file."""
    test_size: int
    """Pairs held out, drawn with ``seed``, where there is no test file; 0 goes without."""
    batch_tokens: int
    """Budget of a batch on one device: rows times the longest side, padding and eos included;
    "auto" in conf/ stands for the largest that the memory of a GPU allows."""
    max_length: int
    """Training pairs with a side of more tokens (bos and eos apart) are left out. So they are of
    the validation loss, but never of the validation or test text."""
    max_ratio: float | None
    """Training pairs with more tokens of one side for one of the other are left out."""
    deduplicate: bool
    """Keep only the first of equal training pairs."""
    workers: int
    """Processes that make batches beside the training process; 0 makes them in it."""
    seed: int
    """Of the order of the batches, the drawn segmentations and the held-out pairs."""
    cache: str
    """Folder of everything derived: fetched files, vocabularies, encoded text."""
    alignment: str | None
    """files, multi30k: word links of the training text, a line such as "0-0 1-2" for each pair
    (source-target, words counted from 0, parted by spaces); what is held out takes its lines
    along. The pocket corpus has its own."""
