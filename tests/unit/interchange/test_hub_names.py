"""Which names mean a model of the Hub."""

from pathlib import Path

import pytest

from transformer.common import hub
from transformer.common.errors import InputError, MissingFile
from transformer.decoding.translator import Translator
from transformer.interchange import import_model
from transformer.interchange.translators import local_run
from transformer.settings.commands import ImportConfig


@pytest.mark.parametrize(
    ("name", "asked"),
    # The folder of the third is there.
    [("hf://user/model", True), ("user/model", True), ("runs/model", False), ("../model", False)],
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


def test_what_names_no_model_is_refused() -> None:
    for name in ("hf://model", "hf://a/b/c", "http://a/b", "hf://a b/c"):
        with pytest.raises(InputError, match="hf://USER/MODEL"):
            hub.download(name)
    # A run in the cache has no settings of one user.
    for key in ("languages", "validation", "test"):
        with pytest.raises(InputError, match="output="):
            ImportConfig("hf://user/model", **{key: "en-de"})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"load_translator.*user/model"):
        Translator.load("hf://user/model")


@pytest.mark.parametrize("key", ["languages", "validation", "test"])
def test_a_folder_that_holds_the_config_of_a_run_takes_no_other(key: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.touch()
    (tmp_path / "config.json").write_text('{"tokenizer": {}}')
    value = "en-de" if key == "languages" else str(text)
    config = ImportConfig(str(tmp_path), output=tmp_path / "run", **{key: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="languages="):
        import_model.import_model(config)
    assert not (tmp_path / "run").exists()
