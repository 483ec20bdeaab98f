"""What the part files of ``translate`` are named after: what decides the translations."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformer.cli.config.compose import compose_config
from transformer.cli.translate.translate import _job


def test_where_and_in_what_batches_is_not_what(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("alpha\n")
    translator: Any = SimpleNamespace(members=[], tokenizer=None, search="beam")

    def job(*arguments: str, text: Path = source) -> str:
        config = compose_config("translate", ["checkpoint=x", *arguments])
        return _job(config, translator, text)

    assert job("device=cuda", "batch_tokens=17") == job()
    moved = tmp_path / "moved"
    moved.write_bytes(source.read_bytes())
    assert job("checkpoint=./x", "input=moved", "output=o", text=moved) == job()
    assert len({job(), job("precision=int8"), job("to=de"), job("format=json")}) == 4
