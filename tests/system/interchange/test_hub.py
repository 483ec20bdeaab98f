"""Models go to a Hub and come back; a cache of ``huggingface_hub`` stands for the Hub."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi, constants

from tests.helpers.interchange.marian_folders import marian_folder, sentences
from transformer.__main__ import main
from transformer.interchange.translators import load_translator
from transformer.settings.translator import TranslatorConfig

COMMIT = "a1" * 20


def translations(name: str) -> list[str]:
    translator, _ = load_translator(TranslatorConfig(name))
    return [translation.text for translation in translator.translate(["A man runs.", "A dog."])]


@pytest.mark.thorough
def test_a_pushed_model_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    created: list[tuple[str, bool]] = []

    def create_repo(api: HfApi, name: str, *, private: bool, **_: Any) -> None:
        created.append((name, private))

    def upload_folder(_: Any, repo_id: str, folder_path: Path, revision: Any) -> Any:
        entry = tmp_path / "hub" / f"models--{repo_id.replace('/', '--')}"
        shutil.copytree(folder_path, entry / "snapshots" / COMMIT)
        (entry / "refs").mkdir()
        (entry / "refs" / "main").write_text(COMMIT)
        return SimpleNamespace(commit_url=f"hub/{repo_id}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    upload_folder(None, "user/marian", marian_folder(tmp_path / "marian"), None)
    for language in ("en", "de"):
        text = "\n".join(sentences(language, "validation", 12)) + "\n"
        Path(f"v.{language}").write_text(text, encoding="utf-8")
    first = ["import", "checkpoint=hf://user/marian", "output=run", "validation=[v.en,v.de]"]
    assert main(first) == 0
    for name in ("huggingface", "safetensors"):
        push = ["push", "checkpoint=run", f"repo=user/{name}", f"format={name}", "private=true"]
        assert main(push) == 0
    assert created == [("user/huggingface", True), ("user/safetensors", True)]
    expected = translations("run")
    assert expected[0].strip()
    for name in ("user/marian", "hf://user/huggingface", "user/safetensors@main"):
        assert translations(name) == expected
    card = tmp_path / "hub" / "models--user--huggingface" / "snapshots" / COMMIT / "README.md"
    assert card.read_text("utf-8").startswith("---\nlanguage:\n- en\n- de\n")
    capsys.readouterr()
    for name in ("hf://user/nothing", "user/marian@v9"):
        assert main(["translate", f"checkpoint={name}", "input=v.en"]) == 2
        assert "the Hub cannot be asked" in capsys.readouterr().err
