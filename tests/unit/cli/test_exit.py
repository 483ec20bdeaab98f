"""Exceptions to exit codes."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError, Interrupted, Terminated

ADVICE = "check its name, permissions and disk, or give another"


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


def test_codes(capsys: pytest.CaptureFixture[str]) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "/home/other/a.en")
    for error, code, message in (
        (InputError("a.en:3: not UTF-8"), 2, "error: a.en:3: not UTF-8\n"),
        (InputError("a\x1b[2J\r:1: no"), 2, "error: a⟨U+001B⟩[2J⟨U+000D⟩:1: no\n"),
        (Interrupted("stopped; resume with x"), 130, "stopped; resume with x\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (Terminated(), 143, "stopped\n"),
        (denied, 2, f"error: /home/other/a.en: Permission denied; {ADVICE}\n"),
    ):
        assert run_to_exit_code(raising(error)) == code
        assert capsys.readouterr() == ("", message)


def test_a_bug_keeps_its_traceback() -> None:
    for bug in (ValueError("bug"), OSError(errno.ENOENT, "")):
        with pytest.raises(type(bug)):
            run_to_exit_code(raising(bug))


PROGRAM = """
import sys
from transformer.cli.exit import run_to_exit_code
sys.exit(run_to_exit_code(lambda: %s))
"""


def printed_to(output: int) -> tuple[int, str]:
    """Exit code and stderr of a program whose line Python holds back until the end."""
    # Where this is set, Python holds nothing back.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    call = [sys.executable, "-c", PROGRAM % "print('line')"]
    done = subprocess.run(
        call, stdout=output, stderr=subprocess.PIPE, env=environment, check=False, text=True
    )
    return done.returncode, done.stderr


def test_a_reader_that_has_gone_at_the_end_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert printed_to(writing) == (141, "")
    os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_without_room_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        message = f"error: standard output: No space left on device; {ADVICE}\n"
        assert printed_to(full.fileno()) == (2, message)


@pytest.mark.parametrize(
    ("closed", "action", "message"),
    [
        (">&-", "print('line')", f"standard output: Bad file descriptor; {ADVICE}"),
        ("<&- >&-", "print(*open_input(None)[0])", f"stdin: Bad file descriptor; {ADVICE}"),
        (">&-", "None", ""),
        ("2>&-", "print('note', file=sys.stderr)", ""),
    ],
)
def test_a_closed_stream_is_one_line_if_it_is_needed(
    closed: str, action: str, message: str
) -> None:
    code = f"from transformer.cli.translate import open_input\n{PROGRAM % action}"
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code]
    done = subprocess.run(shell, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout) == (2 if message else 0, "")
    assert done.stderr == (f"error: {message}\n" if message else "")
