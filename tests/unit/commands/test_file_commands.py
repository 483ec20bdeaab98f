"""Commands on models whose sources are files: paths in, text out, one line for what they lack."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.decoding.file_translators import (
    file_translator,
    save_file_translator,
    write_picture,
    write_sound,
)
from transformer.__main__ import main
from transformer.commands.line_files import PartFiles
from transformer.decoding.translator import Translator
from transformer.interchange.export_formats import FORMATS, Format
from transformer.settings.commands import ExportConfig
from transformer.settings.run import RunConfig


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of pictures, one of sound, and a file of each kind with its path and its text."""
    monkeypatch.chdir(tmp_path)
    for kind in ("image", "speech"):
        save_file_translator(file_translator(kind), tmp_path / f"{kind}.ckpt")
    (tmp_path / "files").mkdir()
    write_picture(tmp_path / "files/a.png")
    write_sound(tmp_path / "files/a.wav", 10.0)
    (tmp_path / "files/pairs.tsv").write_text("a.png\tone two\n")
    return tmp_path


def test_lines_of_paths(home: Path) -> None:
    lines = home / "lines"
    lines.write_text("files/a.wav\n\nfiles/a.wav#t=1,2\n")
    call = ["translate", "checkpoint=speech.ckpt", "input=lines"]
    assert main([*call, "format=json", "output=json"]) == 0
    whole, blank, part = map(json.loads, (home / "json").read_text().splitlines())
    assert whole["parts"] == len(whole["segments"]) == 3
    assert whole["segments"][-1]["end"] == 10.0
    assert blank["text"] == "" and "segments" not in blank
    assert [part["segments"][0][key] for key in ("start", "end")] == [1.0, 2.0]
    assert main([*call, "output=out"]) == 0
    assert (home / "out").read_text().splitlines() == [whole["text"], "", part["text"]]


def test_subtitles_of_a_sound(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "lines").write_text("files/a.wav\n")
    call = ["translate", "checkpoint=speech.ckpt", "input=lines"]
    assert main([*call, "format=json", "output=json"]) == 0
    first, second, third = json.loads((home / "json").read_text())["segments"]
    assert main([*call, "format=srt", "output=a.srt"]) == 0
    cues = (home / "a.srt").read_text().split("\n\n")
    start, end = f"00:00:0{first['end']:.3f}", f"00:00:0{second['end']:.3f}"
    assert cues[1] == f"2\n{start} --> {end}\n{second['text']}".replace(".", ",")
    assert cues[2] == f"3\n{end} --> 00:00:10.000\n{third['text']}\n".replace(".", ",")
    capfd.readouterr()
    # To a stream, too.
    assert main([*call, "format=vtt"]) == 0
    written = capfd.readouterr().out.split("\n\n")
    assert written[:2] == ["WEBVTT", f"00:00:00.000 --> {start}\n{first['text']}"]
    assert len(written) == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["checkpoint=speech.ckpt"], "lines:2: format=srt is of one sound; give one line a call"),
        (["checkpoint=image.ckpt"], "format=srt has the times of a sound, and the sources of this"),
    ],
)
@pytest.mark.parametrize("output", [[], ["output=out"]])
def test_what_has_no_subtitles(
    home: Path,
    capfd: pytest.CaptureFixture[str],
    keys: list[str],
    message: str,
    output: list[str],
) -> None:
    (home / "lines").write_text("files/a.wav\nfiles/a.wav\n")
    assert main(["translate", "input=lines", "format=srt", *output, *keys]) == 2
    out, error = capfd.readouterr()
    assert message in error and error.count("\n") == 1
    assert (out, (home / "out").exists()) == ("", False)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["attention=true"], "attention=true: format=srt has no place for it; add format=json"),
        (["output=o", "launch=ray"], "leave out launch=ray"),
    ],
)
def test_keys_that_subtitles_exclude(
    capsys: pytest.CaptureFixture[str], keys: list[str], message: str
) -> None:
    call = ["translate", "checkpoint=speech.ckpt", "input=lines", "format=srt"]
    assert main([*call, *keys]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_subtitles_that_were_cut_begin_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "lines").write_text("files/a.wav\n")
    call = ["translate", "checkpoint=speech.ckpt", "input=lines", "output=a.srt", "format=srt"]

    def cut(parts: PartFiles) -> None:
        part = parts.path(0)
        part.write_bytes(b"".join(part.read_bytes().splitlines(keepends=True)[:5]))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PartFiles, "finish", cut)
        assert main(call) == 130
    [part] = home.glob("a.srt.*.part")
    assert part.read_text().count(" --> ") == 1
    assert main(call) == 0
    assert (home / "a.srt").read_text().count(" --> ") == 3
    assert list(home.glob("a.srt.*")) == []


def test_a_sound_without_words_has_no_cue(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "lines").write_text("\n")
    call = ["translate", "checkpoint=speech.ckpt", "input=lines"]
    for form, written in (("srt", ""), ("vtt", "WEBVTT\n")):
        assert main([*call, f"format={form}"]) == 0
        assert capfd.readouterr().out == written


def test_one_process_writes_subtitles(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    (home / "lines").write_text("files/a.wav\n")
    call = ["translate", "checkpoint=speech.ckpt", "input=lines", "output=out", "format=srt"]
    assert main(call) == 2
    assert "is of one sound, which one process reads" in capsys.readouterr().err


def test_a_bad_file_is_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "lines").write_text("files/a.png\nfiles/none.png\n")
    assert main(["translate", "checkpoint=image.ckpt", "input=lines", "output=out"]) == 2
    error = capsys.readouterr().err
    assert error == "error: lines:2: files/none.png: no such file; correct the path\n"
    (home / "lines").write_text("files/a.png\nfiles/a.wav\n")
    assert main(["translate", "checkpoint=image.ckpt", "input=lines", "output=out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: lines:2: files/a.wav: its content is WAV, which")
    assert error.count("\n") == 1
    (home / "lines").write_text("files/a.png\nfiles\n")
    assert main(["translate", "checkpoint=image.ckpt", "input=lines", "output=out"]) == 2
    assert capsys.readouterr().err == "error: lines:2: files: a folder; name a file in it\n"


def test_a_picture_that_is_too_wide(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_picture(home / "files/wide.png", 4 * 257)
    (home / "lines").write_text("files/a.png\nfiles/wide.png\n")
    assert main(["translate", "checkpoint=image.ckpt", "input=lines", "output=out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: lines:2: files/wide.png: 257 vectors, and the model reads 256;")


def test_lines_before_a_bad_file_are_written(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "lines").write_text("files/a.png\n\nfiles/none.png\nfiles/a.png\n")
    assert main(["translate", "checkpoint=image.ckpt", "input=lines"]) == 2
    out, error = capfd.readouterr()
    [first, blank] = out.splitlines()
    assert (first != "", blank) == (True, "")
    assert error == "error: lines:3: files/none.png: no such file; correct the path\n"


def test_scores_of_a_text_beside_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["checkpoint=image.ckpt", "source=files/pairs.tsv"]
    assert main(["evaluate", *call, "scores=[wer,cer,bleu]", "output=scored"]) == 0
    names = [score["name"] for score in json.loads(capsys.readouterr().out)]
    assert names == ["WER", "CER", "BLEU"]
    assert main(["score", *call]) == 0
    assert float(capsys.readouterr().out) < 0
    assert main(["stress", *call, "metric=wer", "disturbances=[blur]", "output=scored"]) == 0
    rows = json.loads(Path("scored/stress.json").read_text())["disturbances"]
    assert [row["name"] for row in rows] == ["blur"]


def test_attention_names_places_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ["sentences=0", "output=seen"]
    assert main(["attention", "checkpoint=image.ckpt", "text=files/a.png", *keys]) == 0
    page = json.loads(Path("seen/attention.json").read_text())
    assert '"0,5"' in json.dumps(page)
    assert main(["attention", "checkpoint=speech.ckpt", "text=files/a.wav#t=1,2", *keys]) == 0
    assert '"0.96s"' in Path("seen/attention.json").read_text()
    capsys.readouterr()
    assert main(["attention", "checkpoint=speech.ckpt", "text=files/a.wav", *keys]) == 2
    assert "250 vectors, and the model reads 100 at once" in capsys.readouterr().err


ONLY_SAFETENSORS = (
    "has no model whose sources are files (image) with model.front_end=patches; choose "
    "format=safetensors"
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (["translate", "alignment=true"], "alignment= reads source text"),
        (["translate", "flags=true"], "flags= reads source text"),
        (["translate", "on_failure=mark"], "on_failure= reads source text"),
        (["evaluate", "alignment=true", "source=files/pairs.tsv"], "alignment= reads source text"),
        (["export", "format=ctranslate2"], f"format=ctranslate2 {ONLY_SAFETENSORS}"),
        (["export", "format=huggingface"], f"format=huggingface {ONLY_SAFETENSORS}"),
        (["shortlist", "source=files/pairs.tsv", "output=list"], "shortlist reads source text"),
        (["stress", "disturbances=[upper]"], "'upper', which is no disturbance; choose blur"),
        (["serve", "port=0"], "reads files (image), for which there is no interface"),
    ],
)
def test_what_needs_text_is_refused(
    call: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("lines").write_text("files/a.png\n")
    verb, *keys = call
    given = ["input=lines"] if verb == "translate" else []
    assert main([verb, "checkpoint=image.ckpt", *given, *keys]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not Path("export").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_nothing_is_left_of_an_export_that_a_signal_stops(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    # A program that a shell starts in the background ignores SIGINT.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)

    def write(translator: Translator, run: RunConfig, folder: Path, config: ExportConfig) -> Any:
        (folder / "weights").touch()
        signal.raise_signal(number)

    monkeypatch.setitem(FORMATS, "own", Format(write, any_tokens=True, front_ends=None))
    files = {*Path().iterdir()}
    assert main(["export", "checkpoint=image.ckpt", "format=own"]) == code
    signal.signal(signal.SIGINT, interrupt)
    assert {*Path().iterdir()} == files
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("verb", ["doctor", "clean"])
def test_corpora_of_files_are_not_examined_as_text(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["data=files", "data.source_kind=image", "data.train=files/pairs.tsv"]
    output = ["output=new"] if verb == "clean" else []
    assert main([verb, *data, *output]) == 2
    assert f"{verb} reads source text" in capsys.readouterr().err
