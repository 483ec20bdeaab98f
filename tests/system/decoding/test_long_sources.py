"""Summaries and answers: made-up text with several references, trained on and evaluated."""

import json
from pathlib import Path

import pytest

from benchmarks.data import articles
from tests.helpers.runs.runs import composed
from transformer.__main__ import main
from transformer.runs.train import train

pytestmark = pytest.mark.thorough

SIZES = {"train": 40, "validation": 3, "test": 30}
SMALL = [
    *("model.d_model=16", "model.ffn_dim=16", "model.num_heads=2", "trainer.max_steps=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "tokenizer.vocab_size=1200"),
    *("data.prepare_workers=0", "logger.tensorboard=false", "decoding.max_length_offset=4"),
]


@pytest.mark.parametrize(
    ("experiment", "folder", "names"),
    [
        ("summarization", "summaries", ["rouge1", "rouge2", "rougeL"]),
        ("question_answering", "answers", ["squad_exact_match", "squad_f1"]),
    ],
)
def test_two_updates_and_scores_by_several_references(
    experiment: str,
    folder: str,
    names: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    articles.write(tmp_path, SIZES)
    files = [f"data.{split}={tmp_path / folder / split}.jsonl" for split in SIZES]
    train(composed([f"experiment={experiment}", *files, *SMALL], tmp_path), tmp_path / "run")
    tested = json.loads((tmp_path / "run/test.json").read_text())
    assert [score["name"] for score in tested] == names
    assert all("nrefs:2|" in score["signature"] for score in tested)
    capsys.readouterr()
    assert main(["evaluate", f"checkpoint={tmp_path / 'run'}"]) == 0
    assert json.loads(capsys.readouterr().out) == tested
