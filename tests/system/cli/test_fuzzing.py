"""Whatever is in a file: a verb reads it, or refuses it in one line, and does nothing else.

`tests/property/` has the readers of single formats.
"""

import gzip
import os
import random
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.runs.outcomes import said
from tests.helpers.runs.processes import (
    FORKS,
    TINY,
    call,
    call_verb_here,
    exit_code,
    overrides_in,
    tiny_overrides,
)
from transformer.common.files import PACKAGE
from transformer.settings.corpora import CHECKS

pytestmark = pytest.mark.thorough

SECONDS = 10
MEGABYTES = 2048
"""What a verb may take for a file of a tiny model."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_QUIET = ("/dev/", "/proc/self/")
_QUESTIONS = (
    ["git", "-C", str(PACKAGE), "ls-files", "--error-unmatch", "__init__.py"],
    ["uname", "-p"],
)
"""What a run asks about its code and its machine, whatever it reads."""

SPLITS = ("train", "validation", "test")
RELATIVE = [override.replace("FOLDER/", "") for override in overrides_in("FOLDER")]
OFF = ("copy", "leak", "leak_source", "leak_target")
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
        "checkpoint=x.ckpt",
        "data=files",
        *(f"data.{split}=[own.src,own.tgt]" for split in SPLITS),
        *(f"thresholds.{name}=null" for name in OFF),
    ],
    "train": ["checkpoint=other", "trainer.max_steps=31", "test=false"],
    "finetune": [*RELATIVE, "finetune_from=x.ckpt", "hydra.run.dir=new", "trainer.max_steps=1"],
}
WRITTEN = ("new", "average.ckpt", "attention", "exported", "one.ckpt", "other", "x.ckpt")


@dataclass(frozen=True)
class Outcome:
    """What a verb made of its input."""

    code: int
    stdout: str
    stderr: str
    notes: Sequence[str]
    """Connections, programs, and files written outside of the folder; limits that were passed."""

    def complaints(self) -> list[str]:
        """What is wrong with it; nothing, if the input was taken or refused as it should be."""
        errors = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        wrong = list(self.notes)
        if self.code not in (0, 2):
            wrong.append(f"ended with {self.code}")
        if "Traceback" in self.stderr:
            wrong.append("printed a traceback")
        if len(errors) != (self.code == 2):
            wrong.append(f"printed {len(errors)} errors")
        elif errors and self.stderr.splitlines()[-1] != errors[0]:
            wrong.append("went on after the error")
        if any(ord(sign) < 32 and sign not in "\n\r\t" for sign in self.stderr):
            wrong.append("sent a control character to the terminal")
        if "hunter2" in self.stderr + self.stdout:
            wrong.append("read the environment")
        return [*wrong, self.stderr[-2000:]] if wrong else []


def watched(arguments: Sequence[str], folder: Path, stdin: bytes = b"") -> Outcome:
    """Run ``transformer VERB …`` in a folder, noting what it must not do."""
    streams = [folder / f".{name}" for name in ("stdin", "stdout", "stderr")]
    notes = folder / ".notes"
    for file in (*streams, notes):
        file.unlink(missing_ok=True)
    streams[0].write_bytes(stdin)
    process = FORKS.Process(
        target=_watched, args=(list(arguments), folder, streams, notes), daemon=False
    )
    process.start()
    code = exit_code(process, 6 * SECONDS)
    stdout, stderr = (file.read_bytes().decode(errors="replace") for file in streams[1:])
    return Outcome(code, stdout, stderr, notes.read_text().splitlines())


def _watched(arguments: list[str], folder: Path, streams: list[Path], notes: Path) -> None:
    handle = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    inside = str(folder.resolve())

    def note(what: str) -> None:
        os.write(handle, f"{what}\n".encode())

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo", "os.system", "subprocess.Popen"):
            if values[1] not in _QUESTIONS:
                note(f"{event} {str(values[:2])[:200]}".replace("\n", " "))
            raise FileNotFoundError("not in a test")
        if event == "open" and isinstance(values[2], int) and values[2] & _WRITES:
            path = "" if isinstance(values[0], int) else os.path.abspath(str(values[0]))
            # A folder is opened to write where a file without a name is made in it.
            if path and not path.startswith((inside, *_QUIET)) and not os.path.isdir(path):
                note(f"open {path}")

    before = resource.getrusage(resource.RUSAGE_SELF)
    sys.addaudithook(hook)
    environment = {k: v for k, v in os.environ.items() if k != "TRANSFORMER_TRUST"}
    try:
        call_verb_here(arguments, folder, streams, environment | {"SECRET": "hunter2"})
    finally:
        after = resource.getrusage(resource.RUSAGE_SELF)
        # Seconds of the processor: the machine may be busy.
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        megabytes = (after.ru_maxrss - before.ru_maxrss) / 1024
        if seconds > SECONDS or megabytes > MEGABYTES:
            note(f"took {seconds:.1f} s and {megabytes:.0f} MB")


def _nested(depth: int) -> list[Any]:
    """Short to write and endless to read: each list holds the one below twice."""
    node: list[Any] = ["x"]
    for _ in range(depth):
        node = [node, node]
    return node


def _circle() -> list[Any]:
    node: list[Any] = []
    node.append(node)
    return node


VALUES: Sequence[Any] = (
    None,
    True,
    "",
    [],
    {},
    0,
    -1,
    2**31,
    2**63 - 1,
    10**30,
    float("nan"),
    float("inf"),
    1e308,
    "${oc.env:SECRET}",
    "http://127.0.0.1:9/${oc.env:SECRET}",
    "/etc/passwd",
    "../../x",
    "os:system",
    "\x1b[31m\n<b>",
    "a" * 100_000,
    "\ud800",
    [7, 3, 99],
    {"a": {"b": {"c": [1]}}},
    _nested(40),
    _circle(),
    torch.full((3,), float("nan")),
    torch.zeros(3, 3).to_sparse(),
    torch.zeros(1).expand(10**9),
    torch.arange(50, dtype=torch.uint8),
    torch.tensor(1 + 2j),
)


def changed(node: Any, draw: random.Random) -> Any:
    """A copy of plain containers with one value changed, at any depth; tensors stay shared."""
    is_mapping = isinstance(node, Mapping)
    if not (is_mapping or isinstance(node, list)) or not node or draw.random() < 0.1:
        return _other_value(node, draw)
    copy = dict(node) if is_mapping else list(node)
    key = draw.choice(list(copy) if is_mapping else range(len(copy)))
    chance = draw.random()
    if is_mapping and chance < 0.1:
        del copy[key]
    elif is_mapping and chance < 0.15:
        copy[draw.choice(["x", "", 7, "\n", "shards", "a.b"])] = copy.pop(key)
    else:
        copy[key] = changed(copy[key], draw)
    return copy


def _other_value(value: Any, draw: random.Random) -> Any:
    if type(value) in (int, float) and draw.random() < 0.3:
        return value * draw.choice([-1, 10, 10**6, 0.5]) + draw.choice([0, 1])
    if isinstance(value, torch.Tensor) and value.numel() and draw.random() < 0.7:
        return draw.choice(
            [
                value * 1e30,
                value.flatten()[: value.numel() // 2],
                value[None],
                value.double(),
                value.to(torch.bfloat16),
                value.tolist(),
                torch.zeros(1).expand(1, *value.shape),
            ]
        )
    return draw.choice(VALUES)


ODD = (
    b"\x00",
    b"\xff\xfe",
    b"\r",
    b"\t\t\t",
    b"\x1b[31m",
    b"\xc3",
    "\u2028\ufeff\u2581\u200b\u202e\U0010ffff".encode(),
    b"<script>&amp;",
    b'{"src": 1}',
    b"\\ud800",
    b"\n\n\n",
    b"9" * 300,
    b"alpha " * 200_000,
)


def odd_text(lines: Sequence[bytes], draw: random.Random) -> bytes:
    """A text with odd bytes in its lines, or packed, whole or cut."""
    copy = list(lines)
    for _ in range(draw.choice([1, 3, 20])):
        index = draw.randrange(len(copy))
        cut = draw.randrange(len(copy[index]) + 1)
        copy[index] = copy[index][:cut] + draw.choice(ODD) + copy[index][cut:]
    return b"\n".join(copy) + draw.choice([b"\n", b""])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny run, whose text lies beside it."""
    folder = tmp_path_factory.mktemp("fuzzing")
    tiny_overrides(folder)  # writes the corpus
    assert call([*RELATIVE, "hydra.run.dir=run"], folder) == 0, said(folder)
    stream = ["data.streaming=true", "hydra.run.dir=streamed", "data.buffer=50", "test=false"]
    assert call([*RELATIVE, *stream], folder) == 0, said(folder)
    for side in ("src", "tgt"):
        (folder / f"own.{side}").write_text("alpha beta\ngamma\n")
    return folder


def clear(home: Path, names: Sequence[str]) -> None:
    for name in names:
        path = home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def checkpoint_outcome(reader: str, payload: Any, home: Path) -> Outcome:
    clear(home, WRITTEN)
    (home / "other" / "checkpoints").mkdir(parents=True)
    torch.save(payload, home / "x.ckpt")
    for copy in ("last", "step-00000001", "step-00000002"):
        shutil.copy(home / "x.ckpt", home / "other" / "checkpoints" / f"{copy}.ckpt")
    verb = "train" if reader == "finetune" else reader
    return watched([verb, *READERS[reader]], home, b"alpha beta\n\ngamma\n")


@pytest.mark.parametrize("reader", READERS)
def test_the_file_itself_is_read_by_every_verb(home: Path, reader: str) -> None:
    whole = torch.load(home / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    outcome = checkpoint_outcome(reader, whole, home)
    assert (outcome.code, outcome.complaints()) == (0, [])


def numbers(few: int, many: int) -> list[Any]:
    """The seeds of the first few cases; and of many more, if slow tests are asked for."""
    return [range(few), pytest.param(range(few, many), marks=pytest.mark.slow)]


@pytest.mark.parametrize("seeds", numbers(26, 5_000), ids=str)
def test_whatever_is_in_a_checkpoint(home: Path, seeds: range) -> None:
    payloads = [
        torch.load(home / f"{name}.ckpt", weights_only=True)
        for name in ("run/checkpoints/last", "run/checkpoints/best", "streamed/checkpoints/last")
    ]
    wrong = {}
    for seed in seeds:
        draw = random.Random(seed)
        reader = list(READERS)[seed % len(READERS)]
        outcome = checkpoint_outcome(reader, changed(draw.choice(payloads), draw), home)
        complaints = outcome.complaints()
        if reader == "score" and "nan" in outcome.stdout:
            complaints.append("printed nan")
        if complaints:
            wrong[f"seed {seed}, {reader}"] = complaints
    assert wrong == {}


@pytest.mark.parametrize("seeds", numbers(12, 1_000), ids=str)
def test_whatever_is_in_a_text(home: Path, seeds: range) -> None:
    lines = (home / "train.src").read_bytes().split(b"\n")[:60]
    corpus = ["data=files", "data.source=src", "data.target=tgt", "data.cache=cache-of-texts"]
    corpus += [f"data.{split}=[validation.src,validation.tgt]" for split in SPLITS[1:]]
    wrong = {}
    for seed in seeds:
        clear(home, ["translated", "cleaned", "new", "cache-of-texts"])
        draw = random.Random(seed)
        one = draw.choice(["one", "one.tsv", "one.jsonl", "one.gz"])
        two = "two" if one in ("one", "one.gz") else ""
        for name in filter(None, (one, two)):
            content = odd_text(lines, draw)
            if name.endswith(".gz") and draw.random() < 0.8:
                content = gzip.compress(content)[: draw.choice([None, 99])]
            (home / name).write_bytes(content)
        text = [*corpus, f"data.train={f'[{one},{two}]' if two else one}"]
        calls: dict[str, list[str]] = {
            "translate": ["checkpoint=run", f"input={one}", "output=translated"],
            "evaluate": ["checkpoint=run", f"source={one}", f"reference={two or one}"],
            "compare": ["own.tgt", two or one, "source=own.src", f"reference={one}"],
            "doctor": [*text, *(f"thresholds.{name}=1" for name in CHECKS)],
            "clean": [*text, "output=cleaned"],
            "train": [*text, *TINY, "hydra.run.dir=new", "trainer.max_steps=1", "test=false"],
        }
        verb = list(calls)[seed % len(calls)]
        complaints = watched([verb, *calls[verb]], home).complaints()
        if complaints:
            wrong[f"seed {seed}, {verb}"] = complaints
    assert wrong == {}
