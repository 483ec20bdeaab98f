"""Summaries and answers: made-up text with several references, trained on and evaluated."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.data import articles
from tests.helpers.decoding.metrics import RAW
from tests.helpers.runs.runs import composed
from transformer.__main__ import main
from transformer.evaluation.metrics import score
from transformer.runs.train import train

pytestmark = pytest.mark.thorough

SIZES = {"train": 40, "validation": 3, "test": 30}
SMALL = [
    *("model.d_model=16", "model.ffn_dim=16", "model.num_heads=2", "trainer.max_steps=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "tokenizer.vocab_size=1200"),
    *("data.prepare_workers=0", "logger.tensorboard=false", "decoding.max_length_offset=4"),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("articles")
    articles.write(folder, SIZES)
    return folder


def pairs(file: Path) -> list[tuple[str, Any]]:
    return [(row["source"], row["target"]) for row in map(json.loads, file.open(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("experiment", "folder", "names", "usual"),
    [
        ("summarization", "summaries", ["rouge1", "rouge2", "rougeL"], "lead"),
        ("question_answering", "answers", ["squad_exact_match", "squad_f1"], "usual"),
    ],
)
def test_two_updates_and_scores_by_several_references(
    text: Path,
    experiment: str,
    folder: str,
    names: list[str],
    usual: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = [f"data.{split}={text / folder / split}.jsonl" for split in SIZES]
    metrics = train(
        composed([f"experiment={experiment}", *files, *SMALL], tmp_path), tmp_path / "run"
    )
    assert metrics["val/loss"] < float("inf")
    tested = json.loads((tmp_path / "run/test.json").read_text())
    assert [one["name"] for one in tested] == names
    assert all("nrefs:2|" in one["signature"] for one in tested)
    capsys.readouterr()
    assert main(["evaluate", f"checkpoint={tmp_path / 'run'}"]) == 0
    assert json.loads(capsys.readouterr().out) == tested
    # Hypotheses of another system, beside the run.
    systems = [str(tmp_path / "run"), str(text / folder / f"{usual}.txt")]
    settings = ["split=test", "bootstrap=10", "randomization=10", "training=false"]
    assert main(["compare", *systems, *settings]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert [one["name"] for one in found] == names
    # Texts of more tokens than any of training are read as one.
    assert max(len(source.split()) for source, _ in pairs(text / folder / "test.jsonl")) > 400
    assert "segments" not in caplog.text


def test_articles_say_what_their_targets_do_and_no_part_is_a_summary(
    text: Path, tmp_path: Path
) -> None:
    articles.write(tmp_path / "again", SIZES)
    for folder in ("summaries", "answers"):
        for split in SIZES:
            name = f"{folder}/{split}.jsonl"
            assert (tmp_path / "again" / name).read_bytes() == (text / name).read_bytes()
    for source, forms in pairs(text / "answers/test.jsonl"):
        assert forms[0] in source.partition(" context: ")[2]
    references = [tuple(targets) for _, targets in pairs(text / "summaries/test.jsonl")]
    for baseline, most in (("whole", 20), ("lead", 40), ("first", 40), ("same", 60)):
        copied = (text / f"summaries/{baseline}.txt").read_text().splitlines()
        [found] = score(copied, references, ("rougel",), config=RAW)
        assert 0 < found.value < most, baseline
