"""Whatever is in a file: it is read, or refused in one line, at once and with nothing else done."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.fuzzing import as_file, mutated, other_text, saved, watched
from tests.helpers.runs.outcomes import said
from tests.helpers.runs.processes import TINY, call, overrides_in, tiny_overrides
from transformer.settings.corpora import CHECKS

pytestmark = pytest.mark.thorough

SHORT, LONG, SLICES = 26, 10_000, 10
TEXTS, MANY_TEXTS = 12, 2_000
SPLITS = ("train", "validation", "test")

RELATIVE = [one.replace("FOLDER/", "") for one in overrides_in("FOLDER")]

READERS: dict[str, list[str]] = {
    "translate": ["checkpoint=x.ckpt"],
    "evaluate": ["checkpoint=x.ckpt", "split=validation"],
    "score": ["checkpoint=x.ckpt", "source=own.src", "target=own.tgt"],
    "compare": ["x.ckpt", "run/checkpoints/best.ckpt", "bootstrap=20", "randomization=20"],
    "tune": ["checkpoint=x.ckpt", "beam_sizes=[1]", "length_penalties=[1.0]", "sentences=2"],
    "average": ["checkpoint=other", "last=2", "output=average.ckpt"],
    "attention": ["checkpoint=x.ckpt", "text=alpha beta", "sentences=2", "output=attention"],
    "heads": ["checkpoint=x.ckpt", "sentences=2"],
    "export": ["checkpoint=x.ckpt", "format=safetensors", "output=exported"],
    "consolidate": ["checkpoint=x.ckpt", "output=one.ckpt"],
    "doctor": [
        *("checkpoint=x.ckpt", "data=files"),
        *(f"data.{split}=[own.src,own.tgt]" for split in SPLITS),
        *(f"thresholds.{name}=null" for name in ("copy", "leak", "leak_source", "leak_target")),
    ],
    "train": ["checkpoint=other", "trainer.max_steps=31", "test=false"],
    "finetune": [*RELATIVE, "finetune_from=x.ckpt", "hydra.run.dir=new", "trainer.max_steps=1"],
}
MADE = ("new", "average.ckpt", "attention", "exported", "one.ckpt", "other", "hypotheses", "x.ckpt")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny run, whose text lies beside it."""
    folder = tmp_path_factory.mktemp("fuzzing")
    tiny_overrides(folder)  # writes the corpus
    assert call([*RELATIVE, "hydra.run.dir=run"], folder) == 0, said(folder)
    more = ["data.streaming=true", "hydra.run.dir=streamed", "data.buffer=50", "test=false"]
    assert call([*RELATIVE, *more], folder) == 0, said(folder)
    for side in ("src", "tgt"):
        (folder / f"own.{side}").write_text("alpha beta\ngamma\n")
    return folder


def outcome_of(name: str, content: bytes, home: Path) -> tuple[int, list[str]]:
    """The exit code of a verb that reads a checkpoint, and what is wrong with its outcome."""
    for made in MADE:
        path = home / made
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (home / "x.ckpt").write_bytes(content)
    (home / "other" / "checkpoints").mkdir(parents=True)
    for copy in ("last", "step-00000001", "step-00000002"):
        shutil.copy(home / "x.ckpt", home / "other" / "checkpoints" / f"{copy}.ckpt")
    verb = "train" if name == "finetune" else name
    found = watched([verb, *READERS[name]], home, b"alpha beta\n\ngamma\n")
    wrong = found.complaints()
    if "hunter2" in found.stderr + found.stdout:
        wrong.append("read the environment")
    if verb == "score" and "nan" in found.stdout:
        wrong.append("printed nan")
    return found.code, [*wrong, found.stderr[-2000:]] if wrong else []


def slices(short: int, long: int) -> list[Any]:
    """The numbers of the first few cases; and, if slow tests are asked for, of all, in slices."""
    size = long // SLICES
    slow = [range(first, first + size) for first in range(0, long, size)]
    return [range(short), *(pytest.param(numbers, marks=pytest.mark.slow) for numbers in slow)]


def cases(home: Path, numbers: range) -> Iterator[tuple[str, str, bytes]]:
    payloads: list[Any] = [
        torch.load(home / f"{name}.ckpt", weights_only=True)
        for name in ("run/checkpoints/last", "run/checkpoints/best", "streamed/checkpoints/last")
    ]
    verbs = list(READERS)
    for number in numbers:
        draw = random.Random(number)
        verb = verbs[number % len(verbs)]
        yield f"case {number}, {verb}", verb, mutated(draw.choice(payloads), draw)


@pytest.mark.parametrize("verb", READERS)
def test_the_file_itself_is_read_by_every_verb(home: Path, verb: str) -> None:
    whole = torch.load(home / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert outcome_of(verb, saved(whole), home) == (0, [])


@pytest.mark.parametrize("numbers", slices(SHORT, LONG), ids=str)
def test_whatever_is_in_a_checkpoint(home: Path, numbers: range) -> None:
    wrong = {}
    for name, verb, content in cases(home, numbers):
        if complaints := outcome_of(verb, content, home)[1]:
            wrong[name] = complaints
            (home / f"{name.replace(' ', '-')}.bad").write_bytes(content)
            print(name, *complaints, flush=True)
    assert wrong == {}


def on_text(verb: str, one: str, two: str) -> list[str]:
    """The arguments of a verb that reads a text, of two files or of one with both sides."""
    text = f"[{one},{two}]" if two else one
    own = ["data=files", "data.source=src", "data.target=tgt", f"data.train={text}"]
    ends = [f"data.{split}=[validation.src,validation.tgt]" for split in SPLITS[1:]]
    whole = [*own, *ends, "data.cache=cache-of-texts"]
    arguments = {
        "translate": ["checkpoint=run", f"input={one}", "output=translated"],
        "evaluate": ["checkpoint=run", f"source={one}", f"reference={two or one}"],
        "compare": ["own.tgt", two or one, "source=own.src", f"reference={one}", "bootstrap=20"],
        "doctor": [*whole, *(f"thresholds.{name}=1" for name in CHECKS)],
        "clean": [*whole, "output=cleaned"],
        "train": [*whole, *TINY, "hydra.run.dir=new", "trainer.max_steps=1", "test=false"],
    }
    return arguments[verb]


def text_outcome(number: int, home: Path) -> tuple[str, list[str]]:
    """What is wrong with what a verb makes of a text."""
    for name in ("translated", "cleaned", "new", "cache-of-texts"):
        path = home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    draw = random.Random(number)
    verb = ("translate", "evaluate", "compare", "doctor", "clean", "train")[number % 6]
    names = []
    kind, lines = None, (home / "train.src").read_bytes().split(b"\n")
    for side in ("one", "two"):
        ending, content = as_file(other_text(lines[:60], draw), draw)
        if side == "two" and (kind in (".jsonl", ".tsv") or ending in (".jsonl", ".tsv")):
            break
        kind = ending
        names.append(f"{side}{ending}")
        (home / names[-1]).write_bytes(content)
    one, two = (*names, "")[:2]
    found = watched([verb, *on_text(verb, one, two)], home)
    return verb, [*wrong, found.stderr[-2000:]] if (wrong := found.complaints()) else []


@pytest.mark.parametrize("numbers", slices(TEXTS, MANY_TEXTS), ids=str)
def test_whatever_is_in_a_text(home: Path, numbers: range) -> None:
    wrong = {}
    for number in numbers:
        verb, complaints = text_outcome(number, home)
        if complaints:
            wrong[f"text {number}, {verb}"] = complaints
            print(number, verb, *complaints, flush=True)
    assert wrong == {}
