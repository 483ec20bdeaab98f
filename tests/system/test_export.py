"""A run is exported for another engine, or not at all."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import verb


def test_an_export_is_verified_and_whole(home: Path) -> None:
    code, stdout, stderr = verb("export", "checkpoint=run", "output=engine", home=home)
    assert code == 0, stderr
    assert stdout == "engine\n"
    verified = json.loads(stderr.strip().split("\n")[-1])
    assert verified["agreement"] == 1
    assert verified["bleu"] == verified["bleu_exported"]
    assert {file.name for file in (home / "engine").iterdir()} >= {"model.bin", "config.json"}
    code, _, stderr = verb("export", "checkpoint=run", "output=engine", home=home)
    assert code == 2
    assert "engine is there already" in stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["quantization=int4"], "quantization=int4 is unknown; choose float32 or int8"),
        (["format=onnx"], "format=onnx is unknown; choose ctranslate2"),
        (["most_bleu_lost=-1"], "more than most_bleu_lost=-1; nothing was written"),
        (["sentences=0"], "sentences=0 must be at least 1"),
    ],
)
def test_what_is_refused_leaves_nothing(home: Path, arguments: list[str], says: str) -> None:
    code, stdout, stderr = verb("export", "checkpoint=run", "output=none", *arguments, home=home)
    assert (code, stdout) == (2, "")
    assert says in stderr.strip().split("\n")[-1]
    assert not list(home.glob("none*"))
