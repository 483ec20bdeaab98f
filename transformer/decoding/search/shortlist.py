"""A shortlist: the target tokens that the sources of a batch may need, the only ones searched.

Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", section
3.3; Devlin 2017, "Sharp Models on Dull Hardware".
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from transformer.checkpoint.run_directory import is_ctranslate2, is_exported, run_folder
from transformer.common.errors import InputError, MissingFile
from transformer.common.files import given_path, written_whole
from transformer.data.tokenization.tags import UNTAGGED, is_tag
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from transformer.data.text.lexical_translation import Lexicon

FILE = "shortlist.npz"
"""Its name in a run, where ``decoding.shortlist=auto`` finds it."""
ENGINE_FILE = "vmap.txt"
"""Its name in an export for CTranslate2."""

_SYMBOLS = [PAD, UNK, BOS, EOS]
_NULL_CANDIDATES = 20
"""Most probable tokens of NULL, which has the id of PAD, that are candidates of every batch."""


@dataclass(frozen=True, eq=False)
class Shortlist:
    """Candidates of every source token; where there are fewer, the end symbol is repeated."""

    common: Int[Tensor, " common"]
    """Candidates of every batch: symbols, tags, and the most frequent tokens and those of NULL."""
    candidates: Int[Tensor, "source_vocab candidates"]

    @classmethod
    def build(
        cls, lexicon: "Lexicon", counts: np.ndarray, tokenizer: Tokenizer, frequent: int, best: int
    ) -> "Shortlist":
        """Take the ``best`` most probable targets of each source, and the most ``frequent``.

        A token of the source that the target has, too, is a candidate: names are copied.
        """
        source = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
        target = tokenizer.subwords(range(tokenizer.target_vocab_size))
        keys, probabilities = lexicon
        order = np.lexsort((-probabilities, keys // len(target)))
        sources, targets = np.divmod(keys[order], len(target))
        # Of a target among those of its source, from 0.
        rank = np.arange(len(sources)) - sources.searchsorted(sources)
        kept = rank < best
        candidates = np.full((len(source), 1 + best), EOS)
        candidates[sources[kept], 1 + rank[kept]] = targets[kept]
        ids = {name: index for index, name in enumerate(target)}
        candidates[:, 0] = [ids.get(name, EOS) for name in source]
        tags = [index for index, name in enumerate(target) if is_tag(name)]
        most_frequent = np.argsort(-counts, kind="stable")[:frequent]
        of_null = candidates[PAD, 1 : 1 + _NULL_CANDIDATES]
        common = np.unique([*_SYMBOLS, *tags, *most_frequent, *of_null])
        return cls(torch.from_numpy(common), torch.from_numpy(candidates))

    def tokens(self, segments: Sequence[Sequence[int]]) -> Int[Tensor, " tokens"]:
        """The candidates of a batch, sorted: the first four symbols keep their ids."""
        sources = torch.tensor(sorted({*chain.from_iterable(segments)}), dtype=torch.long)
        return torch.cat((self.common, self.candidates[sources].flatten())).unique()

    def save(self, path: Path, tokenizer: Tokenizer) -> None:
        """Write it as an npz without pickled objects."""
        arrays = {name: tensor.numpy().astype(np.int32) for name, tensor in vars(self).items()}
        with written_whole(path) as part, open(part, "wb") as file:
            np.savez(file, vocabulary=_vocabulary(tokenizer), **arrays)

    @classmethod
    def load(cls, path: Path, tokenizer: Tokenizer) -> "Shortlist":
        """Read it; raises InputError if it is damaged, or was made for another vocabulary."""
        check_tags(tokenizer)
        advice = "remove it, or write that of the model: transformer shortlist checkpoint=RUN"
        try:
            with np.load(path, allow_pickle=False) as arrays:
                tables = [arrays[name].astype(np.int64) for name in ("common", "candidates")]
                same_vocabulary = np.array_equal(arrays["vocabulary"], _vocabulary(tokenizer))
        except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} cannot be read ({error}); {advice}") from error
        sizes = [table.shape[:-1] for table in tables]
        target_size = tokenizer.target_vocab_size
        valid = (
            same_vocabulary
            and sizes == [(), (tokenizer.source_vocab_size,)]
            and all(((table >= 0) & (table < target_size)).all() for table in tables)
            # A search knows the symbols by their ids.
            and tables[0].ravel()[:4].tolist() == _SYMBOLS
        )
        if not valid:
            raise InputError(f"{path} is damaged, or was made for another vocabulary; {advice}")
        return cls(*map(torch.from_numpy, tables))


def with_shortlist_of(search: SearchConfig, checkpoint: Path) -> SearchConfig:
    """The search with the run's shortlist for ``auto``; an export for CTranslate2 has its own."""
    checkpoint_path = given_path(checkpoint)
    if search.shortlist != "auto" or is_ctranslate2(checkpoint_path):
        return search
    path = run_folder(checkpoint_path) / FILE
    if not path.is_file():
        advice = f"make it: transformer shortlist checkpoint={checkpoint}"
        if is_exported(checkpoint_path):
            advice = f"set decoding.shortlist=RUN/{FILE}"
        raise MissingFile(f"decoding.shortlist=auto: {path} does not exist; {advice}")
    return replace(search, shortlist=str(path))


def check_tags(tokenizer: Tokenizer) -> None:
    """Raise InputError for targets that begin with given tokens, which no shortlist has."""
    if tokenizer.tags.given:
        raise InputError(
            "no shortlist is for targets that begin with a given tag (data.target_tag=both) or "
            "symbol (BART); translate without decoding.shortlist"
        )


def _vocabulary(tokenizer: Tokenizer) -> UInt8[np.ndarray, " bytes"]:
    return np.frombuffer(bytes.fromhex(tokenizer.tagged(UNTAGGED).fingerprint), np.uint8)
