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
    more = ["output=out", "splits=[train,test]", "filters.not_nfc=true"]
    assert call("clean", *call_of("planted"), *more) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)["splits"]["train"]
    assert told["kept"] + told["rejected"] == 1000
    assert f"train: {told['kept']:,} of 1,000 pairs kept" in err
    for side in ("en", "de"):
        Path(f"planted/validation.{side}").rename(f"out/validation.{side}")
    assert call("doctor", *call_of("out")) == 0
    assert json.loads(capsys.readouterr().out)["exceeded"] == []


@pytest.mark.parametrize("name", ["doctor", "clean"])
def test_a_vocabulary_that_the_text_cannot_fill(
    name: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    arguments = ["tokenizer=bpe", *(["output=out"] if name == "clean" else [])]
    assert call(name, *call_of("in"), *arguments, "tokenizer.vocab_size=9000") == 2
    assert "error: vocabulary size 9000 is too large" in capsys.readouterr().err
    assert call(name, *call_of("in"), *arguments) == 0
    out, err = capsys.readouterr()
    assert "too large" not in err
    assert name != "doctor" or '"unit": "tokens"' in out
    (line,) = caplog.messages
    assert line.startswith("tokenizer.vocab_size=8000 is too large for this text; ")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("doctor", ["thresholds.empty=2"], "thresholds.empty=2.0 must be from 0 to 1"),
        ("doctor", ["thresholds.emty=0"], "thresholds.empty"),
        ("clean", ["output=out", "filters=false"], "filters=False must be"),
        ("doctor", ["ratio=1"], "ratio=1.0 must be above 1"),
        ("doctor", ["tokenizer=bpe", "checkpoint=x"], "leave tokenizer= out"),
        ("clean", [], "clean needs a value for output="),
        ("clean", ["output=in"], "output=in is there already"),
        ("clean", ["output=out", "filters.unknown_characters=true"], "needs checkpoint=RUN"),
        ("clean", ["output=out", "splits=[tset]"], "splits=['tset'] must name some of train"),
        ("clean", ["output=out", "splits=[]"], "splits=[] must name some of train"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    name: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(name, *call_of("in"), *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert len(said.err.strip().split("\n")) == 1, said.err
    assert not Path("out").exists()


@pytest.mark.parametrize("verb", ["doctor", "clean output=out"])
def test_a_text_that_cannot_be_examined_is_refused(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("pipe")
    assert call(*verb.split(), *call_of("in"), "data.train=[pipe,in/train.de]") == 2
    assert "error: pipe: a pipe cannot be read twice" in capsys.readouterr().err
    for split in ("train", "validation", "test"):
        written({**clean_texts(), split: []}, Path("none"))
        assert call(*verb.split(), *call_of("none")) == 2
        said = f"none/{split}.en, none/{split}.de: the {split} text has no line; give another data."
        assert said in capsys.readouterr().err
        assert not Path("out").exists()


@pytest.mark.parametrize("count", [1, 5, 46])
def test_a_small_text_alone_is_examined_and_cleaned(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*clean_texts()["train"][: count - 1], ("mail server", "Mailserver")]
    Path("small.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs))
    files = ["data=files", "data.source=en", "data.target=de", "data.train=small.tsv"]
    assert call("doctor", *files) == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["pairs"] == count
    assert call("clean", *files, "output=out") == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["kept"] == count


def test_what_clean_repairs_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.tsv").write_text("a dog\tein\u200b Hund\na cat\teine  Katze\nan ape\tein Affe\n")
    files = ["data=files", "data.train=odd.tsv"]
    for repair, said in (("true", "were repaired"), ("false", "can be repaired (repair=true)")):
        assert call("clean", *files, f"output=out_{repair}", f"repair={repair}") == 0
        out, err = capsys.readouterr()
        assert f"  2 of the kept pairs {said}: invisible 1, blanks 1\n" in err
        assert json.loads(out)["splits"]["train"]["repairs"] == {"invisible": 1, "blanks": 1}
    assert call("clean", *files, "output=one", "repairs.blanks=false") == 0
    assert json.loads(capsys.readouterr().out)["splits"]["train"]["repairs"] == {"invisible": 1}


def test_a_text_of_which_little_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    for kept, code in ((2, 0), (1, 0), (0, 2)):
        rows = "a dog\tein Hund\nan ape\tein Affe\n".splitlines(keepends=True)[:kept]
        Path("odd.tsv").write_text("".join([*rows, "a\t\n", "\tb\n"]))
        assert call("clean", "data=files", "data.train=odd.tsv", f"output=out{kept}") == code
        said = capsys.readouterr().err
        assert ("warning: train: 1 of 3 pairs kept (empty 2); " in said) is (kept == 1)
        assert ("filters.empty=false" in said) is (kept < 2)
        assert Path(f"out{kept}").exists() is (kept > 0)


def test_text_that_is_no_translation(capsys: pytest.CaptureFixture[str]) -> None:
    """Its targets recur, and a line may have several, of which clean takes none."""
    row = {"source": "", "target": ["one", "two", "three"]}
    Path("odd.jsonl").write_text(json.dumps(row) + "\n")
    files = ["data=files", "data.source=source", "data.target=target", "data.train=odd.jsonl"]
    assert call("doctor", *files) == 2
    said = capsys.readouterr().err
    assert said.count("odd.jsonl:1: empty: ") == 1 == said.count("odd.jsonl:1: several_targets: ")
    assert "transformer clean (one target a line), or allow more with thresholds.NAME" in said
    Path("train.tsv").write_text("walk\tI_WALK\nrun\tI_RUN\n")
    Path("test.tsv").write_text("war\tI_WALK\n")
    files = ["data=files", "data.train=train.tsv", "data.test=test.tsv"]
    for more, code in ([], 2), (["data.max_ratio=null"], 0):
        assert call("doctor", *files, *more) == code
        assert ("test: leak_target" in capsys.readouterr().err) is bool(code)
    assert call("doctor", *files, "data.max_ratio=null", "thresholds.leak_target=0") == 2
    assert "leave them out with transformer clean" in capsys.readouterr().err


def test_a_run_lends_its_tokenizer_also_without_its_tags(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = read_payload(write_checkpoint(home / "x.ckpt", RUN))
    plain = Tokenizer.from_state(payload[PORTABLE]["tokenizer"])
    payload[PORTABLE]["tokenizer"] = plain.with_tags(Tags(targets=("de", "en"))).to_state()
    write_payload(payload, home / "tagged.ckpt")
    reports = []
    for name in ("x", "tagged"):
        assert call("doctor", *call_of("in"), f"checkpoint={home}/{name}.ckpt") == 2
        report = json.loads(capsys.readouterr().out)
        reports.append({key: report[key] for key in ("splits", "findings")})
        assert report["splits"]["train"]["lengths"]["unit"] == "tokens"
        # It knows few letters: pocket has others.
        assert "train: unknown_characters" in report["exceeded"]
    assert reports[0] == reports[1]
    asked = [f"checkpoint={home}/tagged.ckpt", "filters.unknown_characters=true", "output=out"]
    # This tokenizer is of another text, and knows none of these.
    assert call("clean", *call_of("in"), *asked) == 2
    assert "0 of 200 pairs kept (unknown_characters 200)" in capsys.readouterr().err


def test_a_terminal_gets_tables_and_no_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert call("doctor", *call_of("in")) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("a second\nno fault is more frequent than it may be\n")


def test_a_check_whose_threshold_is_null_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    off = [f"thresholds.{name}=null" for name in ("leak", "language", "mojibake")]
    assert call("doctor", *call_of("in"), *off) == 0
    found = {finding["check"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert not {"leak", "language", "mojibake"} & found
    assert "leak_source" in found
