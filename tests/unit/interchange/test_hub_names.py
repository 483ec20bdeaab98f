"""Which names mean a model of the Hub."""

from pathlib import Path

import pytest

from transformer.common import errors, hub
from transformer.common.errors import InputError, MissingFile
from transformer.decoding.translator import Translator
from transformer.interchange import import_model
from transformer.interchange.translators import local_run
from transformer.settings.commands import ImportConfig


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("hf://user/model", True),
        ("user/model", True),
        ("user/model@v1", True),
        ("runs/model", False),  # the folder is there
        ("model", False),
        ("../model", False),
    ],
)
def test_a_name_is_asked_for_only_if_no_path_is_meant(
    name: str, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    names = []

    def found(config: ImportConfig) -> Path:
        names.append(config.checkpoint)
        return Path("cached")

    monkeypatch.setattr(import_model, "import_model", found)
    assert local_run(name) == (Path("cached") if asked else Path(name))
    assert names == ["hf://" + name.removeprefix("hf://")] * asked

    def missing(config: ImportConfig) -> Path:
        raise MissingFile(f"{config.checkpoint} is not on the Hub")

    monkeypatch.setattr(import_model, "import_model", missing)
    if name.startswith("hf://"):
        with pytest.raises(MissingFile):
            local_run(name)
    else:
        assert local_run(name) == Path(name)


def test_a_file_is_loaded_and_a_name_of_the_hub_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hf://user/model", "user/model"):
        with pytest.raises(InputError, match=r"load_translator.*user/model"):
            Translator.load(name)


@pytest.mark.parametrize("key", ["languages", "validation", "test"])
def test_a_run_in_the_cache_has_no_settings_of_one_user(key: str) -> None:
    with pytest.raises(InputError, match="output="):
        ImportConfig("hf://user/model", **{key: "en-de"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["hf://model", "hf://a/b/c", "http://a/b", "hf://a b/c", "hf://"])
def test_what_names_no_model_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="hf://USER/MODEL"):
        hub.download(name)


def test_the_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="huggingface_hub: pip install"):
        hub.download("hf://a/b")
