"""Wrong calls of translate, standard input, part files, and what a plain call imports."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.runs.tuning_runs import write_run
from transformer.__main__ import main
from transformer.cli.config import command_settings, compose_config
from transformer.cli.translate import LineReader, open_output
from transformer.commands.translate import job
from transformer.common import errors
from transformer.common.errors import InputError
from transformer.quality.failures.flags import Detector


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("attention=true", "attention=true: plain text has no place for it; add format=json"),
        ("decoding.nbest=2", "decoding.nbest=2: plain text has no place for it; add format=json"),
        ("alignment=3", "alignment=3 must be true or false"),
        ("format=xml", "format='xml' must be text or json"),
        ("format=json", "checkpoint=x does not exist; give a run directory"),
        ("launch=ray", "launch=ray reads and writes files; set input= and output="),
        ("launch=slurm", "launch='slurm' must be ray or null"),
        ("join=true", "join=true is for launch=ray; leave it out"),
    ],
)
def test_refusals(argument: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "checkpoint=x", "input=x", argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")


@pytest.mark.parametrize("launched", ["translate output=o", "score output=o"])
def test_without_ray_it_is_said_how_to_install_it(
    launched: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda package: None)
    verb, *call = launched.split()
    text = "input=x" if verb == "translate" else "source=x.tsv"
    assert main([verb, "checkpoint=x", text, "launch=ray", *call]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: launch=ray needs ray: ")
    assert told.endswith("pip install -e '.[ray]' in the checkout\n")


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
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [one["flags"] for one in found] == [["copy"], []]
    assert [one["text"] for one in found] == plain[:2]
    assert main([*call, "on_failure=resample", "alignment=true"]) == 2
    assert "on_failure=resample gives no alignment" in capsys.readouterr().err
    assert main([*call, "on_failure=again"]) == 2
    assert "must be mark or next_best or resample or null" in capsys.readouterr().err


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


PROGRAM = """
import sys
from transformer.__main__ import main
code = main(["translate", f"checkpoint={sys.argv[1]}"])
print(*sys.modules)
sys.exit(code)
"""
UNUSED = (
    # Seconds: torch's compiler, which torch imports by itself to draw weights on the device meta.
    "torch._dynamo",
    "torch._inductor",
    "torch.utils.tensorboard",
    "torchmetrics",
    "pytorch_lightning",
    "tensorboard",
    "sacrebleu",
    "pyarrow",
    "pandas",
    "datasets",
    "scipy",
    "transformers",
    "fsspec",
    "rich",
    "pooch",
    "filelock",
    "starlette",
    "ctranslate2",
)


def test_a_plain_call_imports_only_what_it_needs(tmp_path: Path) -> None:
    call = [sys.executable, "-c", PROGRAM, str(write_run(tmp_path))]
    done = subprocess.run(call, input="a dog\n", capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert [name for name in UNUSED if name in modules] == []


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        with suppress(OSError):
            os.close(end)


def test_half_a_line_is_not_ready(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    reader = LineReader(reading)
    lines = iter(reader)
    assert not reader.ready()
    os.write(writing, b"one\ntwo")
    assert reader.ready()
    assert next(lines) == "one"
    assert not reader.ready()
    os.write(writing, b", and its rest\r\nthr")
    assert reader.ready()
    assert next(lines) == "two, and its rest"
    os.write(writing, b"ee")
    assert not reader.ready()
    os.close(writing)
    assert reader.ready()
    assert list(lines) == ["three"]
    assert reader.ready()


def test_what_is_no_text_is_named_by_its_line(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.write(writing, b"\xef\xbb\xbfone\n\xff\n")
    os.close(writing)
    lines = iter(LineReader(reading))
    assert next(lines) == "one"
    with pytest.raises(InputError, match=r"^stdin:2: byte 1 of the line is not UTF-8; convert"):
        next(lines)


def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    zeros = os.open("/dev/zero", os.O_RDONLY)
    try:
        reader = LineReader(zeros)
        assert reader.ready()
        with pytest.raises(InputError, match=r"^stdin:1: the line is longer than 1,000,000 bytes"):
            next(iter(reader))
    finally:
        os.close(zeros)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_without_room_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as raised, ExitStack() as stack:
        open_output(Path("/dev/full"), stack).write(b"one\n")
    assert raised.value.filename == "/dev/full"
