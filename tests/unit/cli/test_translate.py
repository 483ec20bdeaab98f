"""Wrong calls of translate, its standard input, and which options change its output."""

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.cli.config import command_settings, compose_config
from transformer.cli.translate import LineReader, open_output
from transformer.commands.translate import job
from transformer.common import packages
from transformer.common.errors import InputError
from transformer.quality.failures.flags import Detector


def test_without_ray_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda package: None)
    for verb, text in (("translate", "input=x"), ("score", "source=x.tsv")):
        assert main([verb, "checkpoint=x", text, "launch=ray", "output=o"]) == 2
        assert capsys.readouterr().err.startswith("error: launch=ray needs ray: pip install ")


def test_flags_are_warnings_or_in_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, source, output = write_run(tmp_path), tmp_path / "source", tmp_path / "output"
    source.write_text("a dog\n\n")
    monkeypatch.setattr(
        Detector, "flags", lambda _, text, output, reference=None: ("copy",) * bool(text)
    )
    call = ["translate", f"checkpoint={run}", f"input={source}", f"output={output}"]
    assert main([*call, "flags=true"]) == 0
    assert capsys.readouterr().err.count(f"warning: {source}:1: copy") == 1
    plain = output.read_text().split("\n")
    assert main([*call, "on_failure=mark", "format=json"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["flags"] for row in rows] == [["copy"], []]
    assert [row["text"] for row in rows] == plain[:2]
    assert main([*call, "on_failure=resample", "alignment=true"]) == 2
    assert "on_failure=resample" in capsys.readouterr().err


def test_a_job_is_what_decides_the_translations(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("alpha\n")
    translator = tiny_translator()

    def named(*arguments: str, text: Path = source) -> str:
        call = ["checkpoint=x", *arguments]
        config = command_settings("translate", compose_config("translate", call), call)
        return job(config, translator, text)

    assert named("device=cuda", "batch_tokens=17") == named()
    moved = tmp_path / "moved"
    moved.write_bytes(source.read_bytes())
    assert named("checkpoint=./x", "input=moved", "output=o", text=moved) == named()
    assert len({named(), named("precision=int8"), named("to=de"), named("format=json")}) == 4
    # The batch has a part in the candidates of its sentences.
    translator = tiny_translator(shortlist=str(source))
    assert named("batch_tokens=17") != named() == named("device=cuda")


def test_half_a_line_is_not_ready() -> None:
    reading, writing = os.pipe()
    reader = LineReader(reading)
    lines = iter(reader)
    assert not reader.ready()
    os.write(writing, b"\xef\xbb\xbfone\ntwo")
    assert reader.ready()
    assert next(lines) == "one"
    assert not reader.ready()
    os.write(writing, b", and its rest\r\nthr")
    assert reader.ready()
    assert next(lines) == "two, and its rest"
    os.write(writing, b"ee")
    assert not reader.ready()
    os.write(writing, b"\n\xff\nfour")
    assert next(lines) == "three"
    with pytest.raises(InputError, match=r"^stdin:4: byte 1 of the line is not UTF-8; convert"):
        next(lines)
    os.close(writing)
    # The last line may have no end.
    assert reader.ready()
    assert list(reader) == ["four"]
    assert reader.ready()
    os.close(reading)


def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    zeros = os.open("/dev/zero", os.O_RDONLY)
    reader = LineReader(zeros)
    assert reader.ready()
    with pytest.raises(InputError, match=r"^stdin:1: the line is longer than 1,000,000 bytes"):
        next(iter(reader))
    os.close(zeros)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_without_room_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as raised, ExitStack() as stack:
        open_output(Path("/dev/full"), stack).write(b"one\n")
    assert raised.value.filename == "/dev/full"
