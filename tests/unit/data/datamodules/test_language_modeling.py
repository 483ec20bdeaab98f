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


def test_sentences_are_left_out_by_their_own_length(tmp_path: Path) -> None:
    text = written(tmp_path, "plain")
    module(tmp_path, train=text, validation=text, max_left_out=0.0).prepare_data()
    with pytest.raises(InputError, match=r"train: 2 of 4 pairs .* 1 longer .*now 0\.2"):
        module(tmp_path, train=text, validation=text, max_length=7, max_left_out=0.2).prepare_data()


def trained_on(data: MonolingualData) -> list[Batch]:
    data.prepare_data()
    data.setup("fit")
    return first_epoch(data)


@pytest.mark.parametrize("kind", ["plain", "pair", "tsv", "jsonl"])
@pytest.mark.parametrize("source", ["x", "y"])
def test_a_language_model_reads_only_the_target(tmp_path: Path, kind: str, source: str) -> None:
    text = written(tmp_path, kind)
    data = module(tmp_path, train=text, validation=text, source=source)
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


@pytest.mark.parametrize("kind", ["plain", "pair", "tsv"])
def test_no_held_out_target_is_trained_on(tmp_path: Path, kind: str) -> None:
    text = written(tmp_path, kind)
    data = module(tmp_path, train=text, validation_size=1, test_size=1, deduplicate=False)
    held_out = {*data.texts("validation").sources, *data.texts("test").sources}
    rows = [row for batch in trained_on(data) for row in batch.target_output.tolist()]
    trained = set(tiny_tokenizer().decode_target(rows))
    assert len(held_out) == 2
    assert not held_out & trained
    assert held_out | trained == set(TARGETS)


@pytest.mark.parametrize("kind", ["plain", "pair", "tsv", "jsonl"])
def test_a_sentence_without_positions_is_named_by_its_line(tmp_path: Path, kind: str) -> None:
    (train, text), name = (written(tmp_path, kind) for _ in range(2)), f"text.{kind}"
    longest = max(map(len, tiny_tokenizer().encode_target(TARGETS)))
    module(tmp_path, longest + 1, train=train, validation=text).prepare_data()
    says = rf"{name}:1: .* {longest + 1} tokens .* model\.max_length={longest} .*{longest + 1}$"
    with pytest.raises(InputError, match=says):
        module(tmp_path, longest, train=train, validation=text).prepare_data()


def test_a_held_out_sentence_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"x\t{'a ' * (index + 1)}\n" for index in range(12)))
    data = module(tmp_path, positions=2, train=str(path), validation_size=5)
    with pytest.raises(InputError) as error:
        data.prepare_data()
    # The line says how often it repeats its letter.
    first = next(
        text.count("a") for text in data.texts("validation").sources if text.count("a") > 1
    )
    assert f"text.tsv:{first}: a sentence of {first + 1} tokens" in str(error.value)
