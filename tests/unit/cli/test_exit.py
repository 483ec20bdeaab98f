"""Exceptions to exit codes."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from transformer.cli.exit import exit_code_of
from transformer.errors import InputError, Interrupted


def raising(error: BaseException) -> Callable[[], None]:
    def action() -> None:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("a.en:3: not UTF-8"), 2, "error: a.en:3: not UTF-8\n"),
        (Interrupted("stopped; go on with: x"), 130, "stopped; go on with: x\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_codes(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(raising(error)) == code
    assert capsys.readouterr() == ("", said)


def test_done() -> None:
    assert exit_code_of(lambda: None) == 0


@pytest.mark.parametrize("error", [ValueError("bug"), TypeError("bug"), SystemExit(3)])
def test_a_bug_keeps_its_traceback(error: BaseException) -> None:
    with pytest.raises(type(error)):
        exit_code_of(raising(error))


def test_a_reader_that_has_enough_is_no_error() -> None:
    code = (
        "import sys; from transformer.cli.exit import exit_code_of\n"
        "def action():\n"
        "    while True: print('line')\n"
        "sys.exit(exit_code_of(action))"
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
