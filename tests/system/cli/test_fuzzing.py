"""Any checkpoint or text is read, or refused in one line, and nothing else happens.

`tests/property/` has the readers of single formats.
"""

import gzip
import os
import random
import resource
import shutil
import sys
from collections.abc import Sequence
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
"""What a command may take for a file of a tiny model."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_QUIET = ("/dev/", "/proc/self/")
_QUESTIONS = (
    ["git", "-C", str(PACKAGE), "ls-files", "--error-unmatch", "__init__.py"],
    ["uname", "-p"],
)
"""What a run asks about its code and its machine, whatever it reads."""

RELATIVE = [override.replace("FOLDER/", "") for override in overrides_in("FOLDER")]
READERS: dict[str, list[str]] = {
    "translate": ["checkpoint=x.ckpt"],
    "evaluate": ["checkpoint=x.ckpt", "split=validation"],
    "score": ["checkpoint=x.ckpt", "source=own.src", "target=own.tgt"],
    "compare": ["x.ckpt", "run/checkpoints/best.ckpt", "bootstrap=20", "randomization=20"],
    "average": ["checkpoint=other", "last=2", "output=average.ckpt"],
    "attention": ["checkpoint=x.ckpt", "text=alpha beta", "sentences=2", "output=attention"],
    "heads": ["checkpoint=x.ckpt", "sentences=2"],
    "export": ["checkpoint=x.ckpt", "format=safetensors", "output=exported"],
    "consolidate": ["checkpoint=x.ckpt", "output=one.ckpt"],
    "train": ["checkpoint=other", "trainer.max_steps=31", "test=false"],
    "finetune": [*RELATIVE, "finetune_from=x.ckpt", "hydra.run.dir=new", "trainer.max_steps=1"],
}
WRITTEN = ("new", "average.ckpt", "attention", "exported", "one.ckpt", "other", "x.ckpt")


def complaints(
    arguments: Sequence[str], folder: Path, stdin: bytes = b"", codes: Sequence[int] = (0, 2)
) -> list[str]:
    """Run ``transformer COMMAND …`` in a folder; nothing, if it takes or refuses its input well."""
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
    errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
    wrong = notes.read_text().splitlines()
    if code not in codes:
        wrong.append(f"ended with {code}")
    if "Traceback" in stderr:
        wrong.append("printed a traceback")
    if len(errors) != (code == 2):
        wrong.append(f"printed {len(errors)} errors")
    elif errors and stderr.splitlines()[-1] != errors[0]:
        wrong.append("went on after the error")
    if any(ord(sign) < 32 and sign not in "\n\r\t" for sign in stderr):
        wrong.append("sent a control character to the terminal")
    if "hunter2" in stderr + stdout:
        wrong.append("read the environment")
    if arguments[0] == "score" and "nan" in stdout:
        wrong.append("printed nan")
    return [*wrong, stderr[-2000:]] if wrong else []


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
        if seconds > SECONDS or after.ru_maxrss - before.ru_maxrss > 2**21:
            note(f"took {seconds:.1f} s and {after.ru_maxrss / 1024:.0f} MB")


NESTED: list[Any] = ["x"]
"""Short to write and endless to read: each list holds the one below twice."""
for _ in range(40):
    NESTED = [NESTED, NESTED]

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)

VALUES: Sequence[Any] = (
    None,
    [],
    -1,
    2**63 - 1,
    10**30,
    float("nan"),
    "http://127.0.0.1:9/${oc.env:SECRET}",
    "os:system",
    "\x1b[31m\n<b>",
    "a" * 100_000,
    "\ud800",
    NESTED,
    CIRCLE,
    torch.full((3,), float("nan")),
    torch.zeros(3, 3).to_sparse(),
    torch.zeros(1).expand(10**9),
    torch.tensor(1 + 2j),
)


def changed(node: Any, draw: random.Random) -> Any:
    """A copy of plain containers with one value changed, at any depth; tensors stay shared."""
    if not isinstance(node, dict | list) or not node or draw.random() < 0.1:
        return _other_value(node, draw)
    if isinstance(node, list):
        number = draw.randrange(len(node))
        return [changed(value, draw) if n == number else value for n, value in enumerate(node)]
    copy = dict(node)
    key = draw.choice(list(copy))
    chance = draw.random()
    if chance < 0.1:
        del copy[key]
    elif chance < 0.15:
        copy[draw.choice(["x", "", 7, "\n", "shards", "a.b"])] = copy.pop(key)
    else:
        copy[key] = changed(copy[key], draw)
    return copy


def _other_value(value: Any, draw: random.Random) -> Any:
    if type(value) in (int, float) and draw.random() < 0.3:
        return value * draw.choice([-1, 10, 10**6, 0.5]) + draw.choice([0, 1])
    if isinstance(value, torch.Tensor) and value.numel() and draw.random() < 0.7:
        changes = [value * 1e30, value[None], value.double(), value.tolist()]
        return draw.choice(changes)
    return draw.choice(VALUES)


ODD = (
    b"\x00",
    b"\xff\xfe",
    b"\r",
    b"\x1b[31m",
    "\u2028\ufeff\u2581\u200b\u202e\U0010ffff".encode(),
    b"\n\n\n",
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


def remove(home: Path, *names: str) -> None:
    for path in (home / name for name in names):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def checkpoint_complaints(
    reader: str, payload: Any, home: Path, codes: Sequence[int] = (0, 2)
) -> list[str]:
    remove(home, *WRITTEN)
    (home / "other" / "checkpoints").mkdir(parents=True)
    torch.save(payload, home / "x.ckpt")
    for copy in ("last", "step-00000001", "step-00000002"):
        shutil.copy(home / "x.ckpt", home / "other" / "checkpoints" / f"{copy}.ckpt")
    verb = "train" if reader == "finetune" else reader
    return complaints([verb, *READERS[reader]], home, b"alpha beta\n\ngamma\n", codes)


@pytest.mark.parametrize("reader", READERS)
def test_the_file_itself_is_read_by_every_command(home: Path, reader: str) -> None:
    whole = torch.load(home / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint_complaints(reader, whole, home, codes=(0,)) == []


@pytest.mark.parametrize(
    "seeds", [range(26), pytest.param(range(26, 5_000), marks=pytest.mark.slow)], ids=str
)
def test_whatever_is_in_a_checkpoint(home: Path, seeds: range) -> None:
    payloads = [
        torch.load(home / f"{name}.ckpt", weights_only=True)
        for name in ("run/checkpoints/last", "run/checkpoints/best", "streamed/checkpoints/last")
    ]
    wrong = {}
    for seed in seeds:
        draw = random.Random(seed)
        reader = list(READERS)[seed % len(READERS)]
        payload = changed(draw.choice(payloads), draw)
        if problems := checkpoint_complaints(reader, payload, home):
            wrong[f"seed {seed}, {reader}"] = problems
    assert wrong == {}


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 1_000), marks=pytest.mark.slow)], ids=str
)
def test_whatever_is_in_a_text(home: Path, seeds: range) -> None:
    lines = (home / "train.src").read_bytes().split(b"\n")[:60]
    corpus = ["data=files", "data.source=src", "data.target=tgt", "data.cache=cache-of-texts"]
    corpus += [f"data.{split}=[validation.src,validation.tgt]" for split in ("validation", "test")]
    wrong = {}
    for seed in seeds:
        remove(home, "translated", "cleaned", "new", "cache-of-texts")
        draw = random.Random(seed)
        source = draw.choice(["one", "one.tsv", "one.jsonl", "one.gz"])
        target = "two" if source in ("one", "one.gz") else source
        for name in sorted({source, target}):
            content = odd_text(lines, draw)
            if name.endswith(".gz") and draw.random() < 0.8:
                content = gzip.compress(content)[: draw.choice([None, 99])]
            (home / name).write_bytes(content)
        train = source if source == target else f"[{source},{target}]"
        text = [*corpus, f"data.train={train}"]
        calls: dict[str, list[str]] = {
            "translate": ["checkpoint=run", f"input={source}", "output=translated"],
            "evaluate": ["checkpoint=run", f"source={source}", f"reference={target}"],
            "compare": ["own.tgt", target, "source=own.src", f"reference={source}"],
            "doctor": [*text, *(f"thresholds.{name}=1" for name in CHECKS)],
            "clean": [*text, "output=cleaned"],
            "train": [*text, *TINY, "hydra.run.dir=new", "trainer.max_steps=1", "test=false"],
        }
        verb = list(calls)[seed % len(calls)]
        if problems := complaints([verb, *calls[verb]], home):
            wrong[f"seed {seed}, {verb}"] = problems
    assert wrong == {}
