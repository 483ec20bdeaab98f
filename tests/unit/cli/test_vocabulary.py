"""A size that no command names: which run is the same one, and what its folder may say of it."""

from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.runs.resume import resumed_or_new
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import TokenizerConfig


def write_run(parent: Path, config: str) -> None:
    (parent / "run" / "checkpoints").mkdir(parents=True)
    (parent / "run" / "checkpoints" / "last.ckpt").touch()
    (parent / "run" / "config.yaml").write_text(config)


def chosen(
    parent: Path, size: int | None = None, *, seed: int = 1, named: str | None = None
) -> tuple[str, int | None]:
    """The run that the command goes on with, and the size that it has then."""
    config = RunConfig(seed=seed, tokenizer=TokenizerConfig(vocab_size=size or 8000))
    new = parent / (named or "new")
    now, run, _ = resumed_or_new(config, new, named=named is not None, fit_vocabulary=size is None)
    return run.name, now.tokenizer.vocab_size


def test_a_smaller_vocabulary_is_that_of_the_same_run(tmp_path: Path) -> None:
    write_run(tmp_path, "tokenizer: {vocab_size: 300}")
    assert chosen(tmp_path) == ("run", 300)
    assert chosen(tmp_path, named="run") == ("run", 300)
    assert chosen(tmp_path, seed=2)[0] == "new"
    assert chosen(tmp_path, 300)[0] == "run"
    assert chosen(tmp_path, 8000)[0] == "new"
    with pytest.raises(InputError, match=r"another tokenizer\.vocab_size"):
        chosen(tmp_path, 8000, named="run")
    (tmp_path / "run" / "config.yaml").write_text("tokenizer: {vocab_size: 9000}")
    assert chosen(tmp_path) == ("new", 8000)


def test_a_foreign_folder_tells_no_more_than_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "300")
    for number, config in enumerate(
        ["tokenizer: {vocab_size: '${oc.env:SECRET}'}", "tokenizer: 3"]
    ):
        write_run(tmp_path / str(number), config)
        assert chosen(tmp_path / str(number)) == ("new", 8000)
        assert chosen(tmp_path / str(number), named="run") == ("run", 8000)
