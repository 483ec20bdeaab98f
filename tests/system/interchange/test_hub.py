"""Models go to a Hub and come back: a server on loopback, no network; then the cache alone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.interchange.hub import serving_hub
from tests.helpers.interchange.marian_folders import marian_folder, sentences

PROGRAM = """
import json, os, sys
from pathlib import Path
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.interchange.translators import load_translator
from transformer.settings.translator import TranslatorConfig

results = {"codes": [main(call) for call in json.loads(sys.argv[1])], "texts": {}}
for name in json.loads(sys.argv[2]):
    try:
        translator, _ = load_translator(TranslatorConfig(name))
        texts = translator.translate(["A man runs.", "A dog."])
        results["texts"][name] = [translation.text for translation in texts]
    except InputError as error:
        results["texts"][name] = str(error)
Path("results.json").write_text(json.dumps(results))
"""


def called(folder: Path, calls: list[list[str]], names: list[str], **settings: str) -> Any:
    """Exit codes of verbs, and translations by models, in a new process: the client reads its
    settings when it is imported."""
    environment = {**os.environ, "HF_HOME": str(folder / "hf"), "HF_TOKEN": "token", **settings}
    command = [sys.executable, "-c", PROGRAM, json.dumps(calls), json.dumps(names)]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    marian_folder(folder / "marian", ends=3.0)
    for language in ("en", "de"):
        text = "\n".join(sentences(language, "validation", 12)) + "\n"
        (folder / f"v.{language}").write_text(text, encoding="utf-8")
    (folder / "input").write_text("A man runs.\n")
    return folder


@pytest.mark.thorough
def test_a_pushed_model_comes_back_and_stays_in_the_cache(folder: Path) -> None:
    pushes = [
        ["push", "checkpoint=run", f"repo=user/{name}", f"format={name}", "private=true"]
        for name in ("huggingface", "safetensors")
    ]
    reads = [
        ["translate", "checkpoint=hf://user/safetensors@main", "input=input", "output=out"],
        ["translate", "checkpoint=hf://user/nothing", "input=input"],
        ["translate", "checkpoint=hf://user/marian@v9", "input=input"],
    ]
    names = ["run", "user/marian", "hf://user/huggingface", "user/safetensors", "user/nothing"]
    with serving_hub() as hub:
        marian = {file.name: file.read_bytes() for file in (folder / "marian").iterdir()}
        hub.files["user/marian"] = marian
        first = ["import", "checkpoint=hf://user/marian", "output=run", "validation=[v.en,v.de]"]
        # The other way, by Xet, is a service of its own.
        settings = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
        results = called(folder, [first, *pushes, *reads], names, **settings)
    assert results["codes"] == [0, 0, 0, 0, 2, 2]
    assert results["texts"]["run"][0].strip()
    for name in names[:4]:
        assert results["texts"][name] == results["texts"]["run"]
    assert results["texts"]["user/nothing"].startswith("checkpoint=user/nothing does not exist")
    assert [(repo["name"], repo["visibility"]) for repo in hub.created] == [
        ("huggingface", "private"),
        ("safetensors", "private"),
    ]
    assert hub.files["user/huggingface"]["README.md"].startswith(b"---\nlanguage:\n- en\n- de\n")

    settings = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "1"}
    again = called(folder, reads[:2], names, **settings)
    assert again["codes"] == [0, 2]
    assert {n: again["texts"][n] for n in names[:4]} == {n: results["texts"][n] for n in names[:4]}
    assert "the Hub cannot be asked" in again["texts"]["user/nothing"]
