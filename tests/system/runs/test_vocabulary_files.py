"""Runs with the vocabulary of a file or with bytes: trained, stopped, resumed, exported."""

import json
import signal
from pathlib import Path

import pytest

from tests.helpers.data.vocabulary_files import byte_level_file, sentencepiece_file
from tests.helpers.runs.faults import SignalAt
from tests.helpers.runs.outcomes import assert_equals_whole
from tests.helpers.runs.processes import finish, tiny_config, tiny_overrides
from tests.helpers.runs.runs import verb

MAKE = {
    "sentencepiece": lambda path, lines: sentencepiece_file(path, lines, "unigram", vocab_size=290),
    "huggingface": lambda path, lines: byte_level_file(path, lines, 290),
    "bytes": lambda path, lines: None,
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", MAKE)
def test_a_run_needs_its_file_only_at_the_start(kind: str, tmp_path: Path) -> None:
    tiny_overrides(tmp_path)
    lines = [(tmp_path / f"train.{side}").read_text().split("\n") for side in ("src", "tgt")]
    file = tmp_path / "file"
    given = ["tokenizer.vocab_size=null", f"tokenizer={kind}"]
    if MAKE[kind](file, [line for side in lines for line in side if line]):
        given.append(f"tokenizer.file={file}")
    config = tiny_config(tmp_path, *given)
    finish(config, tmp_path / "whole")
    finish(config, tmp_path / "run", SignalAt("on_train_batch_end", 18, signal.SIGTERM), 143)
    file.unlink(missing_ok=True)
    finish(config, tmp_path / "run")
    assert_equals_whole(tmp_path, tmp_path / "run")
    text = b"alpha beta\n\ngamma\n"
    code, translated, stderr = verb("translate", "checkpoint=run", home=tmp_path, stdin=text)
    assert code == 0 and translated.count("\n") == 3, stderr
    exported = ("export", "checkpoint=run", "format=safetensors", "output=safe")
    assert verb(*exported, home=tmp_path)[0] == 0
    assert verb("translate", "checkpoint=safe", home=tmp_path, stdin=text)[1] == translated
    for form in ("ctranslate2", "huggingface", "argos"):
        call = ("export", "checkpoint=run", f"format={form}", f"output={form}")
        code, _, stderr = verb(*call, home=tmp_path)
        if kind == "sentencepiece":
            assert code == 0, stderr
            assert json.loads(stderr.strip().split("\n")[-1])["sentences"] == 6
        else:
            reason = "transformers needs tokenizer=unigram or bpe"
            reason = reason if form == "huggingface" else f"not as tokenizer={kind} does"
            assert code == 2 and reason in stderr and "choose format=safetensors" in stderr


@pytest.mark.thorough
def test_an_export_has_the_file_that_was_given(tmp_path: Path) -> None:
    tiny_overrides(tmp_path)
    lines = (tmp_path / "train.src").read_text().split("\n")
    file = sentencepiece_file(tmp_path / "file", filter(None, lines), "bpe", vocab_size=290)
    given = ["tokenizer=sentencepiece", "tokenizer.vocab_size=null", f"tokenizer.file={file}"]
    finish(tiny_config(tmp_path, *given), tmp_path / "run")
    code, _, stderr = verb("export", "checkpoint=run", "output=engine", home=tmp_path)
    assert code == 0, stderr
    assert Path(file).read_bytes() == (tmp_path / "engine" / "source.model").read_bytes()
