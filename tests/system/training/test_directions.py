"""One model, two directions, in documents: the same sources, and only a tag says what to do."""

import json
from pathlib import Path

import pytest

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.runs import SMALL, composed, verb
from transformer.__main__ import main
from transformer.runs.train import train

pytestmark = pytest.mark.thorough

SIZES = {"train": 2000, "validation": 40, "test": 40}


def in_documents_of(path: Path, size: int) -> None:
    """Part a file into documents by blank lines."""
    lines = path.read_text().splitlines()
    parts = ["\n".join(lines[start : start + size]) for start in range(0, len(lines), size)]
    path.write_text("\n\n".join(parts) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    folder = tmp_path_factory.mktemp("directions")
    corpora = []
    for code, turn in (("low", list), ("up", lambda words: [word.upper() for word in words])):
        (folder / code).mkdir()
        files = []
        for seed, (split, count) in enumerate(SIZES.items()):
            paths = write_parallel(folder / code, split, count, seed, turn)
            for path in paths:
                in_documents_of(Path(path), 5)
            files.append(f"{split}:[{','.join(paths)}]")
        corpora.append(f"{code}:{{target:{code},{','.join(files)}}}")
    overrides = [
        "data=files",
        "data.source=src",
        "data.target_tag=true",
        "data.documents=2",
        f"data.corpora={{{','.join(corpora)}}}",
        *(option for option in SMALL if "vocab_size" not in option),
        "tokenizer.vocab_size=400",
        "model.positions=rotary",
        "trainer.max_steps=300",
        "trainer.val_check_interval=300",
        "trainer.log_every_n_steps=100",
        "decoding=greedy",
    ]
    metrics = train(composed(overrides, folder / "cache"), folder / "run")
    return folder, metrics


def test_it_learns_both_and_a_line_asks_for_one(trained: tuple[Path, dict[str, float]]) -> None:
    folder, metrics = trained
    for name in ("val/bleu", "val/bleu_low", "val/bleu_up", "test_low/bleu", "test_up/bleu"):
        # In the wrong letters nothing would be right. Five seeds, float32 and bfloat16: 9.3 to 50.
        assert metrics[name] > 4, name
    lines = [{"text": "alpha beta gamma", "to": to} for to in ("low", "up")]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    arguments = ("checkpoint=run", "input_format=json")
    code, out, _ = verb("translate", *arguments, home=folder, stdin=stdin.encode())
    low, up = out.splitlines()
    assert code == 0 and low.islower() and up.isupper()


def test_a_wrong_tag_is_one_line(
    trained: tuple[Path, dict[str, float]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, _ = trained
    for arguments, reason in (
        ([], "set to=low"),
        (["to=de"], "to=de"),
        (["to=low", "tag=web"], "tag=web"),
        (["to=low", "alignment=true"], "a document has no alignment"),
    ):
        call = [f"checkpoint={folder}/run", f"input={folder}/low/test.src", *arguments]
        assert main(["translate", *call]) == 2
        out, err = capfd.readouterr()
        assert out == "" and reason in err and err.count("\n") == 1
