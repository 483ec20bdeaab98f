"""Files that several processes translate, calls that go on, and ensembles, as a user has them."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.data.text import WORDS
from tests.helpers.runs.processes import start_verb
from tests.helpers.runs.ranks import forked_ranks
from tests.helpers.runs.runs import verb

pytestmark = pytest.mark.thorough

# Samples of a text depend on the text alone, and tell it from others. A draw from few tokens lies
# near the border of two much more seldom than one from all: rounding does not turn it.
FILES = ("translate", "checkpoint=run", "decoding=sampling", "decoding.top_k=5")


def phrases(count: int, seed: int = 5) -> str:
    random_ = random.Random(seed)
    lines = (random_.choices(WORDS, k=random_.randint(2, 7)) for _ in range(count))
    return "".join(" ".join(line) + "\n" for line in lines)


@pytest.fixture
def work(home: Path, tmp_path: Path) -> Path:
    """A folder with the run and nothing else."""
    (tmp_path / "run").symlink_to(home / "run")
    return tmp_path


def test_two_processes_say_what_one_says(work: Path) -> None:
    (work / "text").write_text(phrases(150))
    code, stdout, stderr = verb(*FILES, "input=text", "output=one", home=work)
    assert (code, stdout) == (0, ""), stderr
    for code, _, stderr in forked_ranks([*FILES, "input=text", "output=two"], work):
        assert code == 0, stderr
    one = (work / "one").read_bytes()
    assert (work / "two").read_bytes() == one
    assert len(set(one.split(b"\n"))) > 100


def lines_of_part(folder: Path) -> int:
    return sum(part.read_bytes().count(b"\n") for part in folder.glob("killed.*.part"))


def test_a_killed_call_goes_on_where_it_was(work: Path) -> None:
    # Lines are written a window at a time, of 8, 16, …: most are left after the first.
    (work / "text").write_text(phrases(250))
    call = (*FILES, "input=text", "output=killed", "batch_tokens=64")
    killed = start_verb(call, work)
    deadline = time.monotonic() + 60
    while lines_of_part(work) < 8 and killed.process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.process.kill()
    code, _, stderr = killed.ended()
    assert code == -signal.SIGKILL, stderr
    left = lines_of_part(work)
    assert 8 <= left < 250
    assert not (work / "killed").exists()
    code, _, stderr = verb(*call, home=work)
    assert code == 0, stderr
    assert f"resuming after {left} lines in " in stderr
    code, whole, stderr = verb(*FILES, "input=text", home=work)
    assert code == 0, stderr
    # A sample may have a carriage return, which is no end of a line.
    assert (work / "killed").read_bytes().decode() == whole
    assert not list(work.glob("*.part"))


@pytest.mark.parametrize("arguments", [["input=text"], ["output=out"], ["input=-", "output=a"]])
def test_standard_streams_cannot_be_shared_out(work: Path, arguments: list[str]) -> None:
    (work / "text").write_text("alpha\n")
    os.mkfifo(work / "-")
    code, stdout, stderr = verb(*FILES, *arguments, home=work, RANK="0", WORLD_SIZE="2")
    assert (code, stdout) == (2, "")
    expected = "error: several processes need a file to divide: set input= and output= too\n"
    assert stderr == expected
