"""Files that several processes translate, calls that go on, and ensembles, as a user has them."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.runs import PROJECT, run, verb
from tests.helpers.text import WORDS
from transformer.cli.translate.part_files import BLOCK

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


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"run"}


def batch_text(path: Path) -> str:
    """As it is: a sample may have a carriage return, which is no end of a line."""
    return path.read_bytes().decode()


def started(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """A call in a process of its own, to be stopped or waited for."""
    return subprocess.Popen(
        [sys.executable, "-m", "transformer", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_two_processes_say_what_one_says(work: Path) -> None:
    (work / "text").write_text(phrases(200))
    code, stdout, stderr = verb(*FILES, "input=text", "output=one", home=work)
    assert (code, stdout) == (0, ""), stderr
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    module = ("-m", "transformer", *FILES)
    done = run(*launcher, *module, "input=text", "output=two", folder=work)
    assert done.returncode == 0, done.stderr.decode()
    one = (work / "one").read_bytes()
    assert (work / "two").read_bytes() == one
    assert one.count(b"\n") == 200
    assert len(set(one.split(b"\n"))) > 100
    assert names(work) == {"text", "one", "two"}


def lines_of_part(folder: Path) -> int:
    return sum(part.read_bytes().count(b"\n") for part in folder.glob("killed.*.part"))


def test_a_killed_call_goes_on_where_it_was(work: Path) -> None:
    # Lines are written a window at a time, of 8, 16, …: most are left after the first.
    (work / "text").write_text(phrases(1500))
    call = (*FILES, "input=text", "output=killed", "batch_tokens=64")
    process = started(work, *call)
    try:
        deadline = time.monotonic() + 60
        while lines_of_part(work) < 8:
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    left = lines_of_part(work)
    assert 8 <= left < 1500
    assert not (work / "killed").exists()
    code, _, stderr = verb(*call, home=work)
    assert code == 0, stderr
    assert f"resuming after {left} lines in " in stderr
    code, whole, stderr = verb(*FILES, "input=text", home=work)
    assert code == 0, stderr
    assert batch_text(work / "killed") == whole
    assert whole.count("\n") == 1500
    assert names(work) == {"text", "killed"}


def test_a_part_of_another_text_is_not_gone_on_with(work: Path) -> None:
    (work / "text").write_text(phrases(BLOCK))
    (work / "killed.0123456789ab.1of1.part").write_text("of another text\n" * 3)
    code, _, stderr = verb(*FILES, "input=text", "output=killed", home=work)
    assert code == 0, stderr
    assert "going on" not in stderr
    assert "of another text" not in batch_text(work / "killed")
    assert batch_text(work / "killed").count("\n") == BLOCK


@pytest.mark.parametrize("arguments", [[], ["input=text"], ["output=out"], ["input=-", "output=a"]])
def test_standard_streams_cannot_be_shared_out(work: Path, arguments: list[str]) -> None:
    (work / "text").write_text("alpha\n")
    os.mkfifo(work / "-")
    process = started(work, *FILES, *arguments, RANK="0", WORLD_SIZE="2")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, b"")
    expected = "error: several processes need a file to divide: set input= and output= too\n"
    assert stderr.decode() == expected
    assert names(work) == {"text", "-"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["input=gone"], "gone: no such file"),
        (["input=folder"], "folder: cannot be read (Is a directory); give a file"),
        (["output=folder"], "output=folder is a folder; give a file in it"),
        (["output=text"], "output=text is an input too; it would be lost"),
        (["output=folder/../text"], "output=folder/../text is an input too"),
        (["output=link"], "output=link is an input too"),
        (["output=nowhere/out"], "nowhere/out cannot be written: No such file"),
        (["input=latin"], "latin:11: byte 2 of the line is not UTF-8"),
        (["input=requests", "input_format=json"], "requests:10: not JSON"),
        (["input=musts", "input_format=json"], "cannot look for phrases that must occur"),
    ],
)
def test_what_is_wrong_with_the_files_is_said_before_anything_is_translated(
    work: Path, arguments: list[str], says: str
) -> None:
    (work / "folder").mkdir()
    (work / "text").write_text("alpha\n")
    (work / "link").symlink_to("text")
    (work / "latin").write_bytes(b"alpha\n" * 10 + b"b\xe4ta\n")
    (work / "requests").write_text('{"text": "alpha"}\n' * 9 + "alpha\n")
    (work / "musts").write_text('{"text": "alpha", "must": ["beta"]}\n')
    before = names(work)
    call = (*FILES, "input=text", "output=out", *arguments)
    code, stdout, stderr = verb(*call, home=work)
    assert (code, stdout) == (2, "")
    assert says in stderr
    assert stderr.count("\n") == 1
    assert names(work) == before
    assert batch_text(work / "text") == "alpha\n"


def test_an_error_half_way_says_where_the_lines_are_and_a_mended_text_is_begun_anew(
    work: Path,
) -> None:
    free = '{"text": "alpha"}\n' * 8
    (work / "requests").write_text(free + '{"text": "alpha", "must": ["beta"]}\n')
    call = (*FILES, "input=requests", "input_format=json", "output=out")
    code, _, stderr = verb(*call, home=work)
    assert code == 2
    assert stderr.count("\n") == 1
    (part,) = names(work) - {"requests"}
    assert f"; the lines before are translated in {work.resolve()}/{part}\n" in stderr
    assert batch_text(work / part).count("\n") == 8
    (work / "requests").write_text(free + '{"text": "alpha", "never": ["beta"]}\n')
    code, _, stderr = verb(*call, home=work)
    assert code == 0, stderr
    assert "going on" not in stderr
    assert batch_text(work / "out").count("\n") == 9
    assert names(work) == {"requests", "out", part}


def test_links_and_names_and_pipes(work: Path) -> None:
    text = phrases(3)
    (work / "2014").write_text(text)
    (work / "real").write_text("old\n")
    (work / "link").symlink_to("real")
    code, _, stderr = verb(*FILES, "input=2014", "output=link", home=work)
    assert code == 0, stderr
    assert (work / "link").is_symlink()
    expected = batch_text(work / "real")
    assert expected.count("\n") == 3
    # Neither can be gone on with, and the device must stay one.
    through = ("input=/dev/stdin", "output=/dev/stdout")
    code, stdout, stderr = verb(*FILES, *through, home=work, stdin=text.encode())
    assert (code, stdout) == (0, expected), stderr
    assert names(work) == {"2014", "real", "link"}


def test_a_run_with_itself_says_what_it_says_alone(work: Path) -> None:
    (work / "text").write_text(phrases(20))
    (work / "target").write_text(phrases(20, seed=6))
    scored = ("source=text", "target=target")
    alone = verb("score", "checkpoint=run", *scored, home=work)
    said = verb("translate", "checkpoint=run", "input=text", home=work)
    assert alone[0] == said[0] == 0
    for averaging in ("probability", "log_probability"):
        pair = ("checkpoint=[run,run]", f"averaging={averaging}")
        assert verb("translate", *pair, "input=text", home=work)[:2] == said[:2]
        code, scores, stderr = verb("score", *pair, *scored, home=work)
        assert code == 0, stderr
        found, expected = (list(map(float, each.split())) for each in (scores, alone[1]))
        assert found == pytest.approx(expected, abs=1e-4)
    assert len(expected) == 20


def test_evaluate_takes_an_ensemble(work: Path) -> None:
    # Paths of the run's corpus are absolute.
    code, alone, stderr = verb("evaluate", "checkpoint=run", home=work)
    assert code == 0, stderr
    code, pair, stderr = verb("evaluate", "checkpoint=[run,run]", home=work)
    assert code == 0, stderr
    assert json.loads(pair) == json.loads(alone)


@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
def test_low_precision_gives_a_line_for_a_line(work: Path, precision: str) -> None:
    (work / "text").write_text(phrases(20) + "\nalpha\n")
    given = ("checkpoint=run", f"precision={precision}")
    code, _, stderr = verb("translate", *given, "input=text", "output=out", home=work)
    assert code == 0, stderr
    lines = batch_text(work / "out").split("\n")
    assert [bool(line) for line in lines] == [True] * 20 + [False, True, False]
    code, scores, stderr = verb("score", *given, "source=text", "target=text", home=work)
    assert code == 0, stderr
    assert len(scores.split()) == 22
