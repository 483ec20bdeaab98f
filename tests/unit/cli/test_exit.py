"""Exceptions to exit codes."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError, Interrupted

ADVICE = "check its name, permissions and disk, or give another"


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("a.en:3: not UTF-8"), 2, "error: a.en:3: not UTF-8\n"),
        (Interrupted("stopped; resume with x"), 130, "stopped; resume with x\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/home/other/a.en"),
            2,
            f"error: /home/other/a.en: Permission denied; {ADVICE}\n",
        ),
        (InputError("a\x1b[2J\r:1: no"), 2, "error: a⟨U+001B⟩[2J⟨U+000D⟩:1: no\n"),
    ],
)
def test_codes(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_to_exit_code(raising(error)) == code
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("error", [ValueError("bug"), OSError(errno.ENOENT, ""), SystemExit(3)])
def test_a_bug_keeps_its_traceback(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_to_exit_code(raising(error))


def test_a_reader_that_has_enough_is_no_error() -> None:
    code = (
        "import sys; from transformer.cli.exit import run_to_exit_code\n"
        "def action():\n"
        "    while True: print('line')\n"
        "sys.exit(run_to_exit_code(action))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


PRINTS = """
import sys
from transformer.cli.exit import run_to_exit_code
sys.exit(run_to_exit_code(lambda: print("line")))
"""


def printed_to(output: int) -> tuple[int, str]:
    """What becomes of a line that Python holds back until the end: exit code and stderr."""
    # Where this is set, Python holds nothing back.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", PRINTS],
        stdout=output,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )
    return done.returncode, done.stderr.decode()


def test_a_reader_that_has_gone_at_the_end_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert printed_to(writing) == (141, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_without_room_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        said = f"error: standard output: No space left on device; {ADVICE}\n"
        assert printed_to(full.fileno()) == (2, said)


READS = """
import sys
from transformer.cli.exit import run_to_exit_code
from transformer.cli.translate import open_input
sys.exit(run_to_exit_code(lambda: print(*open_input(None)[0])))
"""


NOTES = PRINTS.replace('print("line")', 'print("note", file=sys.stderr)')


@pytest.mark.parametrize(
    ("closed", "code", "says"),
    [
        (">&-", PRINTS, f"standard output: Bad file descriptor; {ADVICE}"),
        ("<&- >&-", READS, f"stdin: Bad file descriptor; {ADVICE}"),
        (">&-", PRINTS.replace('print("line")', "None"), ""),
        ("2>&-", NOTES, ""),
    ],
)
def test_a_closed_stream_is_one_line_if_it_is_needed(closed: str, code: str, says: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code]
    done = subprocess.run(shell, capture_output=True, env=environment, check=False, text=True)
    assert (done.returncode, done.stdout) == (2 if says else 0, "")
    assert done.stderr.startswith(f"error: {says}" if says else "")
    assert done.stderr.count("\n") == bool(says)
