"""Sentences of a document are read together: within the bounds, and never over its end."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.data.corpora import data_config, tokenizer_config, translation_data
from transformer.common.errors import InputError
from transformer.data.binarized.corpus import EncodedCorpus
from transformer.data.corpora.split import Split, numbered
from transformer.data.datamodules.translation import TranslationData
from transformer.data.text.document_windows import begins_window
from transformer.data.text.parallel import Corpus

LENGTHS = st.lists(st.none() | st.integers(1, 12).map(lambda length: (length, length // 2)))


@given(LENGTHS, st.integers(1, 5), st.integers(1, 30))
def test_a_window_is_as_long_as_its_bounds_allow(
    lengths: list[tuple[int, int] | None], sentences: int, subwords: int
) -> None:
    begins = list(begins_window(lengths, sentences, subwords))
    assert begins[:1] == [True] * len(begins[:1])
    starts = [index for index, first in enumerate(begins) if first]
    windows = [range(*pair) for pair in pairwise([*starts, len(lengths)])]

    def size(window: range) -> int:
        return sum(lengths[index][0] for index in window) + len(window) - 1  # type: ignore[index]

    for window, following in zip(windows, [*windows[1:], None], strict=False):
        if any(lengths[index] is None for index in window):
            assert len(window) == 1
            continue
        assert len(window) == 1 or (len(window) <= sentences and size(window) <= subwords)
        if following is not None and lengths[following.start] is not None:
            longer = range(window.start, following.start + 1)
            assert len(longer) > sentences or size(longer) > subwords


def write(folder: Path, name: str, documents: list[list[str]]) -> str:
    """Each target is its source read backwards."""
    lines = "\t\n".join("".join(f"{s}\t{s[::-1]}\n" for s in d) for d in documents)
    (folder / name).write_text(lines)
    return str(folder / name)


def documents_module(folder: Path, **changes: Any) -> TranslationData:
    texts = [["a b", "c", "d e", "b"], ["a"], ["e e", "c a"]]
    train = write(folder, "train.tsv", texts * 3)
    fields = {"train": train, "validation": train, "validation_size": 0, "deduplicate": False}
    config = data_config(folder, **(fields | {"documents": 3} | changes))
    return translation_data(config, tokenizer_config(vocab_size=267))


def hypothesis_texts(module: TranslationData, split: str) -> list[tuple[str, ...]]:
    """What the pieces of each pair spell, a line a sentence."""
    corpus, tokenizer = EncodedCorpus(module._encoded_path(split)), module.tokenizer
    sides = []
    for side, subwords in (("source", tokenizer._source), ("target", tokenizer._target)):
        rows = corpus.ids(side, np.arange(len(corpus)))
        decode = subwords.processor.decode
        sides.append(["\n".join(map(decode, subwords.sentences(row.tolist()))) for row in rows])
    return list(zip(*sides, strict=True))


def test_a_pair_is_a_window_of_a_document(tmp_path: Path) -> None:
    module = documents_module(tmp_path)
    expected = [("a b\nc\nd e", "b a\nc\ne d"), ("b", "b"), ("a", "a"), ("e e\nc a", "e e\na c")]
    assert hypothesis_texts(module, "train") == expected * 3


def test_windows_have_the_first_of_several_targets(tmp_path: Path) -> None:
    rows = [("a b", ["b a", "b"]), ("c", ["c"]), ("d e", ["e d", "e"])]
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in rows))
    module = documents_module(tmp_path, train=str(path), validation=str(path))
    assert hypothesis_texts(module, "train") == [("a b\nc\nd e", "b a\nc\ne d")]


def test_a_key_of_jsonl_parts_documents(tmp_path: Path) -> None:
    rows = [("1", "a"), ("1", "b"), ("2", "c"), ("1", "d")]
    lines = [json.dumps({"id": id_, "x": text, "y": text}) + "\n" for id_, text in rows]
    path = tmp_path / "text.jsonl"
    path.write_text("".join(lines))
    pairs = list(Corpus.of(str(path), "x", "y", "id"))
    assert [source for source, _ in pairs] == ["a", "b", "", "c", "", "d"]
    # Blank pairs that were put between documents are no lines of the file.
    lines = [pair.line for pair in numbered(Split(Corpus.of(str(path), "x", "y", "id")))]
    assert lines == [1, 2, 3, 4]
    with pytest.raises(InputError, match=r"text.jsonl:1: not a JSON object with .*key=part"):
        list(Corpus.of(str(path), "x", "y", "part"))


def test_documents_have_no_held_out_pairs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs a validation text; .*not of a stream, nor of doc"):
        documents_module(tmp_path, validation=None, validation_size=2).prepare_data()
