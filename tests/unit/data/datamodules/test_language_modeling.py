"""A language model sees the target alone, whatever holds it and whatever stands beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpora import (
    data_config,
    data_run,
    first_epoch,
    tokenizer_config,
)
from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch
from transformer.data.datamodules.language_modeling import MonolingualData
from transformer.settings.tokenizer import EOS

# As pairs the first is of a high ratio, the second too long; the last differ only in the source.
SOURCES = ["a", "a dog " * 40, "two cats", "a dog"]
TARGETS = ["ein kind liest ein buch .", "ein hund .", "zwei katzen .", "zwei katzen ."]


def module(folder: Path, positions: int | None = None, **changes: Any) -> MonolingualData:
    config = data_config(folder, max_ratio=2.0, **changes)
    return MonolingualData(
        data_run(config, tokenizer_config(), positions=positions), tiny_tokenizer()
    )


def written(folder: Path, kind: str) -> str | list[str]:
    """The text as a user may have it; a plain file of sources need not even be there."""
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    name = folder / f"text.{kind}"
    if kind == "tsv":
        name.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    elif kind == "jsonl":
        name.write_text("".join(json.dumps({"y": target}) + "\n" for target in TARGETS))
    else:
        name.write_text("".join(f"{target}\n" for target in TARGETS))
    return [str(folder / "gone"), str(name)] if kind == "pair" else str(name)


def trained_on(data: MonolingualData) -> list[Batch]:
    data.prepare_data()
    data.setup("fit")
    return first_epoch(data)


@pytest.mark.parametrize("kind", ["plain", "pair", "tsv", "jsonl"])
def test_a_language_model_reads_only_the_target(tmp_path: Path, kind: str) -> None:
    text = written(tmp_path, kind)
    data = module(tmp_path, train=text, validation=text)
    assert data.texts("validation")[:2] == (TARGETS, [(target,) for target in TARGETS])
    kept = tiny_tokenizer().encode_target(TARGETS[:3])  # the fourth says what the third says
    trained: list[int] = []
    for batch in trained_on(data):
        real = batch.target_output != 0
        trained += batch.labels.tolist()
        assert batch.source.tolist() == batch.target_output.tolist()
        assert batch.tokens == 2 * int(real.sum())
    # Each target once, with its end.
    assert sorted(trained) == sorted(token for row in kept for token in [*row, EOS])


def test_each_of_several_targets_is_trained_on(tmp_path: Path) -> None:
    """The first of all lines, and the others where there are any."""
    (tmp_path / "first").write_text("".join(f"{target}\n" for target in TARGETS[:3]))
    (tmp_path / "second").write_text("\nein haus .\n\n")
    text = [str(tmp_path / name) for name in ("gone", "first", "second")]
    data = module(tmp_path, train=text, validation=text)
    assert data.texts("validation").references == [
        (TARGETS[0],),
        (TARGETS[1], "ein haus ."),
        (TARGETS[2],),
    ]
    rows = [row for batch in trained_on(data) for row in batch.target_output.tolist()]
    assert sorted(tiny_tokenizer().decode_target(rows)) == sorted([*TARGETS[:3], "ein haus ."])


def test_the_line_of_a_long_target_is_named(tmp_path: Path) -> None:
    (tmp_path / "first").write_text("ein hund .\nzwei katzen .\n")
    (tmp_path / "second").write_text("ein kind .\n" + "ein hund . " * 20 + "\n")
    text = [str(tmp_path / name) for name in ("gone", "first", "second")]
    with pytest.raises(InputError, match=r"first:2: a sentence of \d+ tokens does not fit"):
        module(tmp_path, positions=30, train=text, validation=text).prepare_data()


def test_no_held_out_target_is_trained_on(tmp_path: Path) -> None:
    text = written(tmp_path, "tsv")
    data = module(tmp_path, train=text, validation_size=1, test_size=1, deduplicate=False)
    held_out = {*data.texts("validation").sources, *data.texts("test").sources}
    rows = [row for batch in trained_on(data) for row in batch.target_output.tolist()]
    trained = set(tiny_tokenizer().decode_target(rows))
    assert len(held_out) == 2
    assert not held_out & trained
    assert held_out | trained == set(TARGETS)
