"""A run is exported for another engine, or not at all."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch

from tests.helpers.runs.runs import verb
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE


def test_an_export_is_verified_and_whole(home: Path) -> None:
    code, stdout, stderr = verb("export", "checkpoint=run", "output=engine", home=home)
    assert code == 0, stderr
    assert stdout == "engine\n"
    assert "of the model and of the export: 40 validation sentences\n" in stderr
    verified = json.loads(stderr.strip().split("\n")[-1])
    # Two candidates may be so close that rounding, which differs by machine, decides.
    assert verified["agreement"] > 0.95
    assert (verified["split"], verified["sentences"]) == ("validation", 40)
    assert verified["search"] == "greedy (beam size 1)"
    assert verified["chrf2"] == pytest.approx(verified["chrf2_exported"], abs=0.3)
    code, _, stderr = verb("export", "checkpoint=run", "output=engine", home=home)
    assert (code, stderr.count("\n")) == (2, 1)


@pytest.mark.thorough
def test_a_package_of_argos_translates_as_its_run(home: Path) -> None:
    call = ("export", "checkpoint=run", "format=argos", "output=argos")
    code, _, stderr = verb(*call, home=home)
    assert code == 0, stderr
    verified = json.loads(stderr.strip().split("\n")[-1])
    assert verified["sentences"] == 40
    name = "translate-src_tgt-1_0"
    with zipfile.ZipFile(home / "argos" / f"{name}.argosmodel") as package:
        metadata = json.loads(package.read(f"{name}/metadata.json"))
        assert f"{name}/sentencepiece.model" in package.namelist()
    assert (metadata["from_code"], metadata["to_code"]) == ("src", "tgt")


CT2 = ["engine=ctranslate2"]


@pytest.fixture(scope="module")
def engines(home: Path) -> Path:
    """A run with an export of its own."""
    run = home / "engines"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copy(home / "run" / "checkpoints" / "best.ckpt", run / "checkpoints")
    code, _, stderr = verb("export", "checkpoint=engines", home=home)
    assert code == 0, stderr
    return run


@pytest.mark.thorough
def test_an_engine_that_is_there_is_used_if_it_searches_alike(home: Path, engines: Path) -> None:
    text = ["checkpoint=engines", "input=test.src"]
    other = ["decoding.no_repeat_ngram=3", "decoding.stopping=full", "engine=auto"]
    code, _, stderr = verb("translate", *text, *other, home=home)
    assert code == 0 and "auto: torch searches; decoding.no_repeat_ngram=3 cannot" in stderr, stderr
    assert not list((engines / "export").glob("auto-*"))
    # As after training: there is no folder of exports yet.
    shutil.copytree(engines / "checkpoints", home / "fresh" / "checkpoints")
    text[0] = "checkpoint=fresh"
    full = [*text, "decoding.stopping=full", "engine=auto"]
    for message in (f"auto: writing {home}/fresh/export/auto-", "auto: CTranslate2 searches, with"):
        code, translated, stderr = verb("translate", *full, home=home)
        assert code == 0 and message in stderr, stderr
    assert translated == verb("translate", *text, "decoding.stopping=full", home=home)[1]
    code, _, stderr = verb("translate", *full, "precision=int8", home=home)
    assert code == 0 and "auto: torch searches; CTranslate2 is for float32" in stderr, stderr


@pytest.fixture(scope="module")
def alone(home: Path, engines: Path) -> Path:
    """An export of a run that was validated by greedy search, moved away from it."""
    shutil.copytree(engines / "checkpoints", home / "greedy" / "checkpoints")
    file = home / "greedy" / "checkpoints" / "best.ckpt"
    payload = torch.load(file, weights_only=True)
    # Which of several endless hypotheses is best depends on the batch.
    payload[PORTABLE]["config"]["decoding"] |= {"algorithm": "greedy", "beam_size": 1}
    torch.save(payload, file)
    code, _, stderr = verb("export", "checkpoint=greedy", home=home)
    assert code == 0, stderr
    (home / "elsewhere").mkdir()
    return (home / "greedy" / "export" / "ctranslate2").rename(home / "elsewhere" / "model")


def test_an_export_alone_translates_as_its_run(home: Path, alone: Path) -> None:
    code, expected, stderr = verb("translate", "checkpoint=greedy", "input=test.src", home=home)
    assert code == 0, stderr
    arguments = [f"checkpoint={alone}", "engine=ctranslate2", "input=test.src"]
    assert verb("translate", *arguments, home=home)[:2] == (0, expected)


ELSEWHERE = "checkpoint=elsewhere/model"


@pytest.mark.parametrize(
    ("verb", "arguments", "says"),
    [
        ("translate", ["engine=onnx"], "engine='onnx' must be torch or ctranslate2"),
        ("translate", [*CT2, "engine_folder=x"], "x holds no exports for engine=ctranslate2"),
        ("translate", [*CT2, "checkpoint=[run,run]"], "engine=ctranslate2 takes one checkpoint"),
        ("translate", [*CT2, "precision=int8"], "takes one checkpoint and no precision="),
        ("score", [ELSEWHERE, "source=a", "target=b"], "is an export for CTranslate2"),
        ("translate", [*CT2, ELSEWHERE, "heads_off=cross.0.0"], "heads_off= needs the run"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_what_an_export_cannot_do_is_one_line(
    verb: str,
    arguments: list[str],
    says: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(home)
    assert main([verb, "checkpoint=engines", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_one_of_several_exports_must_be_chosen(home: Path, engines: Path) -> None:
    exports = home / "several" / "export"
    shutil.copytree(engines, home / "several")
    shutil.copytree(exports / "ctranslate2", exports / "ctranslate2-int8")
    code, _, stderr = verb("translate", "checkpoint=several", "engine=ctranslate2", home=home)
    assert code == 2
    assert "choose one: engine_folder=" in stderr


def test_a_folder_of_safetensors_is_enough(home: Path) -> None:
    arguments = ["format=safetensors", "output=folder"]
    code, stdout, stderr = verb("export", "checkpoint=run", *arguments, home=home)
    assert (code, stdout) == (0, "folder\n"), stderr
    names = {file.name for file in (home / "folder").iterdir()}
    assert names == {"README.md", "model.safetensors", "config.json", "source.model"}
    results = [
        verb("translate", f"checkpoint={name}", "input=validation.src", home=home)
        for name in ("run", "folder")
    ]
    assert results[0] == results[1]
    assert results[0][0] == 0
    small = ["export", "checkpoint=run", "format=safetensors", "output=small"]
    code, _, stderr = verb(*small, "quantization=int8", "max_bleu_loss=100", home=home)
    assert code == 0 and json.loads(stderr.strip().split("\n")[-1])["bytes"] > 0
    texts = ["translate", "checkpoint=small", "precision=int8", "input=validation.src"]
    assert verb(*texts, home=home)[0] == 0
    code, _, stderr = verb(*small[:3], "output=no", "quantization=int16", home=home)
    assert (code, (home / "no").exists()) == (2, False)
    assert stderr == ("error: quantization=int16 is not for safetensors; choose float32 or int8\n")
    imported = ["checkpoint=folder", "output=again", "validation=[validation.src,validation.src]"]
    code, _, stderr = verb("import", *imported, home=home)
    assert code == 2 and "validation= and test= have no effect: " in stderr
