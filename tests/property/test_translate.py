"""Random Unicode through the command translate: as many lines out as in, and no crash."""

import random
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.decoding.translators import save_translator, tiny_translator
from tests.helpers.runs.processes import start_verb

SEARCH: dict[str, Any] = {
    "algorithm": "greedy",
    "beam_size": 1,
    "max_length_ratio": 1.0,
    "max_length_offset": 2,
}

# Ranges of code points: plain text, controls and spaces, whole planes, combining marks.
RANGES = [
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x00, 0x1F),
    (0x7F, 0xA0),
    (0x300, 0x36F),
    (0x2000, 0x206F),
    (0x4E00, 0x9FFF),
    (0x590, 0x6FF),
    (0xE000, 0xFFFF),
    (0x10000, 0x10FFFF),
]
# What means something to a tokenizer, a shell or a terminal.
ODD = ["<s>", "</s>", "<unk>", "<0x0A>", "▁", "\u2028", "\x85", "\ufeff", "\r", "\\n", "\t", " "]


def random_line(random_: random.Random) -> str:
    parts = []
    for _ in range(random_.randint(0, 6)):
        low, high = random_.choice(RANGES)
        drawn = (random_.randint(low, high) for _ in range(random_.randint(0, 6)))
        parts.append("".join(chr(c) for c in drawn if not 0xD800 <= c < 0xE000 and c != 10))
        parts.append(random_.choice(ODD))
    return "".join(parts)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights: it says whatever its vocabulary can spell, bytes included."""
    path = tmp_path_factory.mktemp("tiny") / "x.ckpt"
    save_translator(tiny_translator(encoder_layers=1, decoder_layers=1, **SEARCH), path)
    return path


def translated(checkpoint: Path, lines: list[str], *settings: str) -> list[str]:
    """What the command answers to these lines on its standard input."""
    text = "".join(f"{line}\n" for line in lines).encode()
    call = ("translate", f"checkpoint={checkpoint}", *settings)
    code, stdout, stderr = start_verb(call, checkpoint.parent, text).ended(most=3600)
    assert code == 0, stderr[-2000:]
    assert "Traceback" not in stderr
    assert stdout.endswith("\n")
    return stdout.split("\n")[:-1]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("count", "option"),
    [
        (300, "decoding.algorithm=beam"),
        pytest.param(100_000, "batch_tokens=8192", marks=pytest.mark.slow),
    ],
)
def test_random_unicode(checkpoint: Path, count: int, option: str) -> None:
    random_ = random.Random(1)
    lines = [random_line(random_) for _ in range(count)]
    answers = translated(checkpoint, lines, option)
    assert len(answers) == len(lines)
    for line, answer in zip(lines, answers, strict=True):
        # A carriage return before the line end belongs to it.
        if not line.removesuffix("\r").strip():
            assert answer == ""


def test_each_line_is_answered_before_the_next_is_there(checkpoint: Path) -> None:
    call = [sys.executable, "-m", "transformer", "translate", f"checkpoint={checkpoint}"]
    # A warning would stand between the lines.
    call += ["decoding.max_length_offset=20"]
    with subprocess.Popen(
        call, cwd=checkpoint.parent, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        for line in ("a\n", "\n", "a b\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 120)[0], "it waits for more"
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0
