"""The generator makes the text of data/pocket/."""

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from scripts.pocket.generate import LANGUAGE, SEED, SIZES, generate_splits, input_files
from scripts.pocket.grammar import Grammar

COMMITTED = Path(__file__).parents[3] / "data" / "pocket"
FEWER = {**SIZES, "train": 2_000, "test_novel": 50}


@cache
def grammar() -> Grammar:
    return Grammar.load(LANGUAGE)


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(SIZES, marks=pytest.mark.slow), pytest.param(FEWER, marks=pytest.mark.thorough)],
)
def test_the_generator_makes_the_committed_text(sizes: Mapping[str, int]) -> None:
    committed = {path.relative_to(COMMITTED) for path in COMMITTED.rglob("*.gz")}
    files = dict(input_files(generate_splits(grammar(), SEED, sizes)))
    assert committed == {Path(f"{name}.gz") for name in files}
    for name, text in files.items():
        # Another zlib may pack the same text in other bytes.
        whole = gzip.decompress((COMMITTED / f"{name}.gz").read_bytes()).decode()
        if sizes == SIZES:
            assert text == whole, name
        # Fewer words of train are known, so that other sentences of test_novel are understood.
        elif "test_novel" not in name:
            assert text and whole.startswith(text), name
