"""The default run reaches its BLEU: `pytest -m slow tests/system/test_pocket.py`, five minutes."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import PROJECT, run


@pytest.mark.slow
def test_the_default_reaches_its_bleu(tmp_path: Path) -> None:
    done = run(str(PROJECT / "train.py"), "hydra.run.dir=run", folder=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stderr.decode()
    for split, least in (("test", 90), ("test_novel", 80)):
        (bleu,) = [
            score
            for score in json.loads((tmp_path / "run" / f"{split}.json").read_text())
            if score["name"] == "BLEU"
        ]
        assert bleu["score"] >= least
