"""``text`` and ``select``: what recipes are made of, as a user calls them."""

import gzip
import json
from pathlib import Path

import pytest

from transformer.__main__ import main


def test_every_format_becomes_plain_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"en": f"word {n}", "de": f"Wort\u2028{n}"} for n in range(30)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "all.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    call = [
        "data=files",
        "data.source=en",
        "data.target=de",
        f"data.train={tmp_path}/all.jsonl.gz",
        "data.validation_size=5",
        "data.test_size=3",
        f"data.cache={tmp_path}/cache",
    ]
    assert main(["text", *call, f"output={tmp_path}/o"]) == 0
    assert "train: 22 pairs" in capsys.readouterr().err
    texts = {path.name: path.read_text().split("\n")[:-1] for path in (tmp_path / "o").iterdir()}
    assert {name: len(side) for name, side in texts.items()} == {
        "train.en": 22,
        "train.de": 22,
        "validation.en": 5,
        "validation.de": 5,
        "test.en": 3,
        "test.de": 3,
    }
    pairs = set[tuple[str, str]]()
    for split in ("train", "validation", "test"):
        pairs.update(zip(texts[f"{split}.en"], texts[f"{split}.de"], strict=True))
    assert pairs == {(row["en"], row["de"]) for row in rows}
    assert main(["text", *call, f"output={tmp_path}/p", "splits=[test]"]) == 0
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"test.en", "test.de"}
    assert (tmp_path / "p" / "test.en").read_bytes() == (tmp_path / "o" / "test.en").read_bytes()


def test_text_that_is_read_or_there_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for language in ("en", "de"):
        lines = [f"{language} {number}\n" for number in range(20)]
        (tmp_path / f"train.{language}").write_text("".join(lines))
    (tmp_path / "link").symlink_to(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("train.*")}
    call = [
        "data=files",
        "data.source=en",
        "data.target=de",
        f"data.train=[{tmp_path}/train.en,{tmp_path}/train.de]",
        f"data.cache={tmp_path}/cache",
        "data.validation_size=2",
        "data.test_size=2",
        f"output={tmp_path}/link",
    ]
    assert main(["text", *call]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: output={tmp_path}/link/train.en is an input too")
    assert {path.name: path.read_bytes() for path in tmp_path.glob("[tv]*.*")} == before
    assert main(["text", *call, "splits=[test]"]) == 0
    (tmp_path / "test.de").write_text("mine\n")
    assert main(["text", *call, "splits=[test]"]) == 2
    assert "/link/test.en is there already; name a new folder" in capsys.readouterr().err
    assert (tmp_path / "test.de").read_text() == "mine\n"


def test_bad_calls_of_text_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    sizes = ["data.validation_size=0", "data.test_size=0"]
    files = ["data=files", f"data.train=[{tmp_path}/a,{tmp_path}/b]", f"output={tmp_path}/o"]
    for arguments, message in (
        ([], "error: "),
        (["splits=[test]"], "error: splits=['test'] must name some of train"),
        (["output=/proc/o"], "error: /proc/o: "),
        (["data.streaming=true"], "error: data.corpora and data.streaming are for train"),
    ):
        assert main(["text", *files, *sizes, *arguments]) == 2
        errors = capsys.readouterr().err
        assert errors.startswith(message) and errors.count("\n") == 1
    assert not list(tmp_path.glob("o/*"))


def test_select_takes_the_candidate_nearest_to_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = [
        ["the house is red .", "a house is green .", "the houses"],
        ["", "x"],
        [],
        ["the first", "of equals"],
    ]
    rows = [{"text": "", "nbest": [{"text": text} for text in texts]} for texts in lists]
    nbest, reference = tmp_path / "n.jsonl", tmp_path / "r"
    nbest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    reference.write_text("a house is green now .\nx\n\nfour five six\n")
    call = [f"nbest={nbest}", f"reference={reference}", f"output={tmp_path}/new/out"]
    assert main(["select", *call]) == 0
    assert (tmp_path / "new" / "out").read_text() == "a house is green .\nx\n\nthe first\n"
    before = nbest.read_bytes(), reference.read_bytes()
    for file in (nbest, reference):
        assert main(["select", *call, f"output={file}"]) == 2
        assert "is an input too; it would be lost" in capsys.readouterr().err
    assert (nbest.read_bytes(), reference.read_bytes()) == before
    for line, message in (
        ("{}\n" * 4, f"{nbest}:1: not a line of translate format=json"),
        ('{"nbest":[{"text":"\\ud800"}]}\n' * 4, f"{nbest}:1: not a line of translate"),
        ('{"nbest":[{"text":"a"}]}\n', f"{nbest} has 1 lines and {reference} has 4"),
    ):
        nbest.write_text(line)
        assert main(["select", *call, f"output={tmp_path}/other"]) == 2
        assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not list(tmp_path.glob("other*"))


def test_the_nearest_is_so_by_the_metrics_that_are_set(tmp_path: Path) -> None:
    texts = [{"text": text} for text in ("The cat runs .", "a DOG RUNS .", "a dog rums .")]
    (tmp_path / "n.jsonl").write_text(json.dumps({"text": "", "nbest": texts}) + "\n")
    (tmp_path / "r").write_text("A dog runs .\n")
    files = [f"nbest={tmp_path}/n.jsonl", f"reference={tmp_path}/r"]
    for number, setting in enumerate(("lowercase=false", "lowercase=true", "tokenize=char")):
        assert main(["select", *files, f"output={tmp_path}/{number}", setting]) == 0
        assert (tmp_path / str(number)).read_text() == texts[number]["text"] + "\n"
