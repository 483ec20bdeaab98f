"""Files that nobody would write, and verbs that read them in a process that is watched."""

import gzip
import io
import json
import os
import random
import resource
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.helpers.runs.processes import FORKS, call_verb_here, exit_code
from transformer.common.files import PACKAGE

SECONDS, MEGABYTES = 10, 2048
"""What a verb may take for a file of a tiny model."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_QUIET = ("/dev/", "/proc/self/")
_OWN = (["git", "-C", str(PACKAGE), "ls-files", "--error-unmatch", "__init__.py"], ["uname", "-p"])
"""What a run asks about its code and its machine, whatever it reads."""


@dataclass(frozen=True)
class Outcome:
    """What a verb made of its input."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    """Of the processor: a machine may be busy."""
    megabytes: float
    """The most memory at once, less what the process began with."""
    forbidden: tuple[str, ...]
    """Connections, programs, and files written outside of the folder."""

    def complaints(self) -> list[str]:
        """What is wrong with it; nothing, if the input was taken or refused as it should be."""
        errors = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        wrong = [f"did {what}" for what in self.forbidden]
        if self.code not in (0, 2):
            wrong.append(f"ended with {self.code}")
        if "Traceback" in self.stderr:
            wrong.append("printed a traceback")
        if len(errors) != (1 if self.code == 2 else 0):
            wrong.append(f"printed {len(errors)} errors")
        elif self.code == 2 and self.stderr.splitlines()[-1] != errors[0]:
            wrong.append("went on after the error")
        if any(ord(sign) < 32 and sign not in "\n\r\t" for sign in self.stderr):
            wrong.append("sent a control character to the terminal")
        if self.seconds > SECONDS:
            wrong.append(f"took {self.seconds:.1f} s")
        if self.megabytes > MEGABYTES:
            wrong.append(f"took {self.megabytes:.0f} MB")
        return wrong


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
    noted = notes.read_text().splitlines() if notes.exists() else []
    used = [line.split()[1:] for line in noted if line.startswith("used ")] or [["inf", "0"]]
    return Outcome(
        code,
        *(streams[n].read_bytes().decode(errors="replace") for n in (1, 2)),
        *map(float, used[-1]),
        tuple(line for line in noted if not line.startswith("used ")),
    )


def _watched(arguments: list[str], folder: Path, streams: list[Path], notes: Path) -> None:
    handle = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    inside = str(folder.resolve())

    def note(what: str) -> None:
        os.write(handle, f"{what}\n".encode())

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo", "os.system", "subprocess.Popen"):
            if values[1] in _OWN:
                raise FileNotFoundError("not in a test")
            note(f"{event} {str(values[:2])[:200]}".replace("\n", " "))
            raise OSError("not in a test")
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
        now = resource.getrusage(resource.RUSAGE_SELF)
        seconds = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
        note(f"used {seconds:.2f} {(now.ru_maxrss - before.ru_maxrss) / 1024:.0f}")


VALUES: Sequence[Callable[[random.Random], Any]] = (
    *(lambda _, value=value: value for value in (None, True, False, "", "x", [], {}, 0, 1, -1)),  # type: ignore[misc]
    lambda draw: draw.choice([2**31, 2**63 - 1, -(2**63), 10**8, 10**30, 3, 17]),
    lambda draw: draw.choice([float("nan"), float("inf"), -0.5, 1e308, 1e-320]),
    lambda draw: draw.choice(["${oc.env:SECRET}", "http://127.0.0.1:9/${oc.env:SECRET}", "chrf"]),
    lambda draw: draw.choice(["/etc/passwd", "../../x", "http://127.0.0.1:9/x", "os:system"]),
    lambda draw: draw.choice(["\x1b[31m\n<b>", "a" * 100_000, "\ud800", "null", "1e5"]),
    lambda draw: [draw.randrange(100) for _ in range(draw.randrange(9))],
    lambda _: {"a": {"b": {"c": [1]}}},
    lambda _: _shared(40),
    lambda _: _circle(),
    lambda draw: torch.full((draw.randrange(1, 9),), float("nan")),
    lambda draw: torch.zeros(draw.randrange(9), draw.randrange(9)),
    lambda _: torch.zeros(3, 3).to_sparse(),
    lambda _: torch.zeros(1).expand(10**9),
    lambda draw: torch.tensor(list(draw.randbytes(50)), dtype=torch.uint8),
    lambda _: torch.tensor(1 + 2j),
)


def _shared(depth: int) -> list[Any]:
    """Short to write and endless to read: each list holds the one below twice."""
    node: list[Any] = ["x"]
    for _ in range(depth):
        node = [node, node]
    return node


def _circle() -> list[Any]:
    node: list[Any] = []
    node.append(node)
    return node


def mutated(payload: Mapping[str, Any], draw: random.Random) -> bytes:
    """A checkpoint with something wrong: in its values mostly, else in its archive or its bytes."""
    kind = draw.random()
    if kind < 0.7:
        copy = _copied(payload)
        for _ in range(draw.choice([1, 1, 1, 2, 4])):
            _change(copy, draw)
        return saved(copy)
    content = saved(payload)
    return _other_records(content, draw) if kind < 0.9 else other_bytes(content, draw)


def saved(payload: Any) -> bytes:
    """The bytes of a checkpoint."""
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return buffer.getvalue()


def _copied(node: Any) -> Any:
    """The containers anew, the tensors as they are: shared ones stay shared."""
    if isinstance(node, Mapping):
        return {key: _copied(value) for key, value in node.items()}
    return [_copied(value) for value in node] if isinstance(node, list) else node


def _change(node: Any, draw: random.Random) -> None:
    """Change one value, at any depth: each key on the way is as likely as its neighbors."""
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        if not keys:
            return
        key = draw.choice(list(keys))
        inner = node[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.85:
            node = inner
            continue
        break
    how = draw.random()
    if how < 0.15 and isinstance(node, dict):
        del node[key]
    elif how < 0.25 and isinstance(node, dict):
        node[draw.choice(["x", "", 7, "\n", "shards", "a.b"])] = node.pop(key)
    elif how < 0.5 and isinstance(inner, torch.Tensor):
        node[key] = _other_tensor(inner, draw)
    elif how < 0.6 and type(inner) in (int, float):
        node[key] = inner * draw.choice([-1, 10, 10**6, 0.5]) + draw.choice([0, 1])
    else:
        node[key] = draw.choice(VALUES)(draw)


def _other_tensor(tensor: torch.Tensor, draw: random.Random) -> Any:
    # What is expanded from a few bytes would be written as gigabytes.
    if tensor.layout != torch.strided or tensor.nbytes > tensor.untyped_storage().nbytes():
        return None
    flat = tensor.clone().flatten()
    if tensor.dtype == torch.uint8:
        for _ in range(draw.choice([1, 5, 100])):
            flat[draw.randrange(len(flat))] = draw.randrange(256)
        return flat[: draw.choice([len(flat), len(flat) // 2])]
    others: list[Callable[[], Any]] = [
        lambda: flat.index_fill(0, torch.tensor([0]), float("nan")).reshape(tensor.shape),
        lambda: tensor * 1e30,
        lambda: flat,
        lambda: tensor[None],
        lambda: tensor.double(),
        lambda: tensor.to(torch.bfloat16),
        lambda: tensor.to(torch.int64),
        lambda: tensor.tolist(),
        lambda: torch.zeros(1).expand(1, *tensor.shape),
    ]
    return draw.choice(others)() if len(flat) else None


def _other_records(content: bytes, draw: random.Random) -> bytes:
    """The same archive with other records, whose checksums are right."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    name = draw.choice([n for n in records if n.endswith("data.pkl")] * 20 + list(records))
    record = records[name]
    match draw.randrange(5):
        case 0:
            del records[name]
        case 1:
            records[name] = record + draw.randbytes(draw.randrange(1, 40))
        case 2:
            records[name] = record[: draw.randrange(len(record) + 1)]
        case _:
            records[name] = other_bytes(record, draw)
    packing = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(written, "w", packing) as archive:
        for name, record in records.items():
            archive.writestr(name, record)
        if draw.random() < 0.1:
            archive.writestr("archive/zeros", bytes(3 * 10**6))
    return written.getvalue()


def other_bytes(content: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, left out, put in, or repeated."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 2, 8, 50])):
        index = draw.randrange(len(changed) + 1)
        match draw.randrange(4):
            case 0:
                changed[index : index + 1] = draw.randbytes(1)
            case 1:
                del changed[index : index + draw.randrange(1, 30)]
            case 2:
                changed[index:index] = draw.randbytes(draw.randrange(1, 9))
            case _:
                changed[index:index] = changed[max(0, index - 20) : index]
    return bytes(changed)


ODD: Sequence[bytes] = (
    *(b"\x00", b"\xff\xfe", b"\r", b"\r\n", b"\t", b"\t\t\t", b"\x1b[31m", b"\x85", b"\xc3"),
    *(
        one.encode()
        for one in ("\u2028", "\ufeff", "\u2581", "\u200b", "\u202e", "\U0010ffff", "e\u0301")
    ),
    *(b"<script>", b"&amp;", b'{"src": 1}', b"\\ud800", b"\n\n\n", b"\x0c", b"\x1a", b"9" * 300),
)


def other_text(lines: Sequence[bytes], draw: random.Random) -> bytes:
    """A text with odd bytes in it, or lines that are gone, empty, repeated or very long."""
    changed = list(lines)
    for _ in range(draw.choice([1, 1, 3, 20])):
        index = draw.randrange(len(changed) + 1)
        match draw.randrange(7):
            case 0:
                changed[index : index + draw.choice([1, 1, 500])] = []
            case 1:
                changed[index:index] = [b""] * draw.choice([1, 50])
            case 2:
                changed[index:index] = [b"alpha " * draw.choice([100, 1_000, 200_000])]
            case 3:
                changed[index:index] = [draw.randbytes(draw.randrange(60)).replace(b"\n", b"")]
            case _:
                at = min(index, len(changed) - 1)
                if at >= 0:
                    cut = draw.randrange(len(changed[at]) + 1)
                    changed[at] = changed[at][:cut] + draw.choice(ODD) + changed[at][cut:]
    return b"\n".join(changed) + draw.choice([b"\n", b"\n", b""])


def as_file(content: bytes, draw: random.Random) -> tuple[str, bytes]:
    """A text as a file of some kind, and the end of its name; some are not what the name says."""
    match draw.randrange(6):
        case 0:
            packed = gzip.compress(content)
            return ".gz", draw.choice([packed, packed[: len(packed) // 2], content])
        case 1:
            rows = [
                json.dumps({"src": line, "tgt": line}, ensure_ascii=draw.random() < 0.5)
                for line in content.decode(errors="replace").split("\n")
            ]
            return ".jsonl", other_bytes("\n".join(rows).encode(), draw)
        case 2:
            return ".tsv", b"\n".join(line + b"\t" + line for line in content.split(b"\n"))
        case _:
            return "", content
