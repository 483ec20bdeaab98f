"""Which names mean a model of the Hub."""

from pathlib import Path

import pytest

from transformer.common import errors, files, hub
from transformer.common.errors import InputError, MissingFile


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

    def found(given: str) -> Path:
        names.append(given)
        return Path("cached")

    monkeypatch.setattr(files, "hub_run", found)
    assert files.local_path(name) == (Path("cached") if asked else Path(name))
    assert names == [name] * asked

    def missing(given: str) -> Path:
        raise MissingFile(f"{given} is not on the Hub")

    monkeypatch.setattr(files, "hub_run", missing)
    if name.startswith("hf://"):
        with pytest.raises(MissingFile):
            files.local_path(name)
    else:
        assert files.local_path(name) == Path(name)


@pytest.mark.parametrize("name", ["hf://model", "hf://a/b/c", "http://a/b", "hf://a b/c", "hf://"])
def test_what_names_no_model_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is no model of the Hub; write hf://USER/MODEL"):
        hub.download(name)


def test_the_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"hf://a/b needs huggingface_hub: pip install"):
        hub.download("hf://a/b")
