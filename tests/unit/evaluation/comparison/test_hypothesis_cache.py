"""When translations that were kept are used again."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.translators import PAIRS, tiny_translator
from transformer.common.files import PACKAGE
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.evaluation.comparison import hypothesis_cache
from transformer.evaluation.comparison.hypothesis_cache import (
    _made_from,
    code_digest,
    load_hypotheses,
)

SOURCES = [source for source, _ in PAIRS]
NO_BYTE_CODE = shutil.ignore_patterns("__pycache__")


def translated(folder: Path, sources: list[str], **changes: Any) -> list[str]:
    return load_hypotheses(tiny_translator(**changes), sources, folder, "validation")


def test_what_was_translated_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = translated(tmp_path, SOURCES)
    assert "decoding 4 sentences of validation" in capsys.readouterr().err
    [file] = tmp_path.glob("*.hyp")
    assert file.read_text().split("\n") == [*first, ""]
    assert translated(tmp_path, SOURCES) == first
    assert f"{file}: decoded before" in capsys.readouterr().err
    about = json.loads(file.with_suffix(".json").read_text())
    assert about["search"]["beam_size"] == tiny_translator().search.beam_size


def test_what_would_come_out_differently_is_translated_anew(tmp_path: Path) -> None:
    kinds: list[tuple[list[str], dict[str, Any]]] = [
        (SOURCES, {}),
        (SOURCES, {"beam_size": 2}),
        (SOURCES, {"length_penalty": 0.3}),
        (SOURCES[:3], {}),
        ([*SOURCES[:3], "another ."], {}),
    ]
    for number, (sources, changes) in enumerate(kinds, 1):
        assert len(translated(tmp_path, sources, **changes)) == len(sources)
        assert len(list(tmp_path.glob("*.hyp"))) == number
    translator = tiny_translator()
    with torch.no_grad():
        next(translator.model.parameters())[0, 0] += 1
    load_hypotheses(translator, SOURCES, tmp_path, "validation")
    assert len(list(tmp_path.glob("*.hyp"))) == len(kinds) + 1
    plain = _made_from(tiny_translator(), ["a dog"])
    tagged = _made_from(tiny_translator(), [TaggedText("a dog", SourceTags("de"))])
    assert plain["sources"] != tagged["sources"]


@pytest.mark.parametrize("what", ["code", "library"])
def test_other_code_is_not_believed_to_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    translated(tmp_path, SOURCES)
    if what == "code":
        monkeypatch.setattr(hypothesis_cache, "code_digest", lambda: "other")
    else:
        monkeypatch.setattr(hypothesis_cache.metadata, "version", lambda name: f"{name} 0.0")
    translated(tmp_path, SOURCES)
    assert len(list(tmp_path.glob("*.hyp"))) == 2


def test_code_is_what_lies_there(tmp_path: Path) -> None:
    def digest(name: str) -> str:
        copy = tmp_path / name
        for folder in ("data", "model", "decoding", "evaluation"):
            shutil.copytree(PACKAGE / folder, copy / folder, ignore=NO_BYTE_CODE)
        if name != "same":
            with (copy / name / "__init__.py").open("a") as file:
                file.write("# changed\n")
        return code_digest(copy)

    assert digest("same") == digest("evaluation") == code_digest()
    assert len({digest(name) for name in ("data", "model", "decoding")} | {code_digest()}) == 4


def test_what_a_users_program_chose_is_not_kept(tmp_path: Path) -> None:
    ranked = {"algorithm": "mbr", "beam_size": 1, "candidates": 2, "utility": "operator:eq"}
    assert len(translated(tmp_path, SOURCES, **ranked)) == len(SOURCES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["edited", "torn", "unknown"])
def test_what_is_not_as_it_was_written_is_not_believed(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = translated(tmp_path, SOURCES)
    [file] = tmp_path.glob("*.hyp")
    if damage == "unknown":
        file.with_suffix(".json").unlink()
    else:
        file.write_text("other\n" * 4 if damage == "edited" else file.read_text()[:-5])
    capsys.readouterr()
    assert translated(tmp_path, SOURCES) == first
    assert "decoding" in capsys.readouterr().err
    assert file.read_text().split("\n") == [*first, ""]


def test_a_folder_that_cannot_be_written_to_keeps_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    said = load_hypotheses(tiny_translator(), SOURCES, tmp_path / "file", "validation")
    assert len(said) == 4
    assert "cannot be kept" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["file"]
