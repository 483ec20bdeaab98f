"""``push`` without a Hub."""

import sys
from pathlib import Path

import pytest

from tests.unit.cli.test_load import RUN, written
from transformer.__main__ import main

pytest.importorskip("huggingface_hub")


def test_a_dry_run_uploads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"source": "en", "target": "de", "corpus": "pocket", "corpora": None}
    (tmp_path / "checkpoints").mkdir()
    written(tmp_path / "checkpoints" / "best.ckpt", RUN | {"data": data})
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # its import would fail
    monkeypatch.setattr("transformer.common.hub.require_package", lambda *names: None)
    call = ["push", f"checkpoint={tmp_path}", "repo=me/model", "format=safetensors"]
    assert main([*call, "dry_run=true"]) == 0
    said = capsys.readouterr()
    folder = tmp_path / "export" / "push"
    assert said.out == f"{folder}\n"
    assert "dry_run=true: nothing is uploaded to me/model" in said.err
    assert 'TranslatorConfig("me/model")' in (folder / "README.md").read_text()
    assert (folder / "model.safetensors").is_file()
    assert main([*call, "output=x"]) == 2
    assert "output=x is for dry_run=true" in capsys.readouterr().err
