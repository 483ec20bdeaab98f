"""Wrong calls of doctor and clean, and what a right one says."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.unit.cli.test_load import RUN
from tests.unit.cli.test_load import written as write_checkpoint
from tests.unit.quality.texts import call_of, clean_texts, planted_texts, written
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, read_payload, write_payload
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a little clean text."""
    written({split: pairs[:200] for split, pairs in clean_texts().items()}, tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(verb: str, *arguments: str) -> int:
    return main([verb, *arguments])


@pytest.mark.thorough
def test_planted_faults_are_found_left_out_and_gone(capsys: pytest.CaptureFixture[str]) -> None:
    texts, where = planted_texts()
    written(texts, Path("planted"))
    assert call("doctor", *call_of("planted")) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert err.splitlines()[-1].startswith("error: too many faults (train: misaligned;")
    assert "test: leak" in report["exceeded"]
    assert report["splits"]["train"]["pairs"] == 1000
    assert report["pairs_per_second"] > 0
    for check in ("empty", "mojibake", "language"):
        assert f"planted/train.de:{where[check][1]}: {check}: " in err
    keys = ["output=out", "splits=[train,test]", "filters.not_nfc=true"]
    assert call("clean", *call_of("planted"), *keys) == 0
    out, err = capsys.readouterr()
    train = json.loads(out)["splits"]["train"]
    assert train["kept"] + train["rejected"] == 1000
    assert f"train: {train['kept']:,} of 1,000 pairs kept" in err
    for side in ("en", "de"):
        Path(f"planted/validation.{side}").rename(f"out/validation.{side}")
    assert call("doctor", *call_of("out")) == 0
    assert json.loads(capsys.readouterr().out)["exceeded"] == []


@pytest.mark.parametrize("call_of_verb", [("doctor",), ("clean", "output=out")])
def test_a_vocabulary_that_the_text_cannot_fill(
    call_of_verb: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments = [*call_of_verb, *call_of("in"), "tokenizer=bpe"]
    assert call(*arguments, "tokenizer.vocab_size=9000") == 2
    assert "error: vocabulary size 9000 is too large" in capsys.readouterr().err
    assert call(*arguments) == 0
    assert call_of_verb[0] == "clean" or '"unit": "tokens"' in capsys.readouterr().out
    [line] = caplog.messages
    assert line.startswith("tokenizer.vocab_size=8000 is too large for this text; ")


def test_a_wrong_call_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    for name, arguments, message in (
        ("doctor", ["thresholds.empty=2"], "thresholds.empty=2.0 must be from 0 to 1"),
        ("doctor", ["tokenizer=bpe", "checkpoint=x"], "leave tokenizer= out"),
        ("doctor", ["data.train=[pipe,in/train.de]"], "pipe: a pipe cannot be read twice"),
        ("clean", [], "clean needs a value for output="),
        ("clean", ["output=in"], "output=in is there already"),
        ("clean", ["output=out", "filters.unknown_characters=true"], "needs checkpoint=RUN"),
        ("clean", ["output=out", "splits=[tset]"], "splits=['tset'] must name some of train"),
    ):
        assert call(name, *call_of("in"), *arguments) == 2
        output, errors = capsys.readouterr()
        assert output == ""
        assert message in errors
        assert errors.count("\n") == 1
    assert not Path("out").exists()


def test_an_empty_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, split in (("doctor", "train"), ("doctor", "test"), ("clean", "validation")):
        written({**clean_texts(), split: []}, Path("none"))
        keys = ["output=out"] if verb == "clean" else []
        assert call(verb, *call_of("none"), *keys) == 2
        message = f"none/{split}.en, none/{split}.de: the {split} text has no line"
        assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_small_text_is_examined_and_repaired(capsys: pytest.CaptureFixture[str]) -> None:
    Path("small.tsv").write_text("mail server\tMailserver\n")
    assert call("doctor", "data=files", "data.train=small.tsv") == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["pairs"] == 1
    Path("odd.tsv").write_text("a dog\tein\u200b Hund\na cat\teine  Katze\nan ape\tein Affe\n")
    for repair, message in (("true", "were repaired"), ("false", "can be repaired (repair=true)")):
        keys = ["data=files", "data.train=odd.tsv", f"output=out_{repair}", f"repair={repair}"]
        assert call("clean", *keys) == 0
        output, errors = capsys.readouterr()
        assert f"  2 of the kept pairs {message}: invisible 1, blanks 1\n" in errors
        assert json.loads(output)["splits"]["train"]["repairs"] == {"invisible": 1, "blanks": 1}


def test_text_that_is_no_translation(capsys: pytest.CaptureFixture[str]) -> None:
    """Its targets recur, and a line may have several, of which clean takes none."""
    row = {"source": "", "target": ["one", "two", "three"]}
    Path("odd.jsonl").write_text(json.dumps(row) + "\n")
    files = ["data=files", "data.source=source", "data.target=target", "data.train=odd.jsonl"]
    assert call("doctor", *files) == 2
    errors = capsys.readouterr().err
    assert errors.count("odd.jsonl:1: empty: ") == errors.count("odd.jsonl:1: several_targets: ")
    assert "transformer clean (one target a line), or allow more with thresholds.NAME" in errors
    Path("train.tsv").write_text("walk\tI_WALK\nrun\tI_RUN\n")
    Path("test.tsv").write_text("war\tI_WALK\n")
    files = ["data=files", "data.train=train.tsv", "data.test=test.tsv"]
    assert call("doctor", *files) == 2
    assert "test: leak_target" in capsys.readouterr().err
    assert call("doctor", *files, "data.max_ratio=null") == 0
    assert "test: leak_target" not in capsys.readouterr().err


def test_a_run_lends_its_tokenizer_also_without_its_tags(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = read_payload(write_checkpoint(home / "x.ckpt", RUN))
    plain = Tokenizer.from_state(payload[PORTABLE]["tokenizer"])
    payload[PORTABLE]["tokenizer"] = plain.with_tags(Tags(targets=("de", "en"))).to_state()
    write_payload(payload, home / "tagged.ckpt")
    asked = f"checkpoint={home}/tagged.ckpt"
    assert call("doctor", *call_of("in"), asked) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["splits"]["train"]["lengths"]["unit"] == "tokens"
    # This tokenizer is of another text, and knows none of these.
    assert "train: unknown_characters" in report["exceeded"]
    keys = ["filters.unknown_characters=true", "output=out"]
    assert call("clean", *call_of("in"), asked, *keys) == 2
    assert "0 of 200 pairs kept (unknown_characters 200)" in capsys.readouterr().err


def test_a_check_whose_threshold_is_null_is_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    off = [f"thresholds.{name}=null" for name in ("leak", "language", "mojibake")]
    assert call("doctor", *call_of("in"), *off) == 0
    checks = {finding["check"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert not {"leak", "language", "mojibake"} & checks
    assert "leak_source" in checks
    # A terminal gets tables, and no JSON.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert call("doctor", *call_of("in")) == 0
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.endswith("no fault is more frequent than it may be\n")
