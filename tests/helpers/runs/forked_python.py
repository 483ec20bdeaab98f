"""``python …`` in a fork that has imported everything, with pipes for its streams."""

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

import torch

from tests.helpers.runs.processes import exit_code
from tests.helpers.suite.fork_server import FORKS


class ForkedPython:
    """In place of `subprocess.Popen`, as far as tests use it; its streams are text."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        stdin: int | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int | None = None,
        text: bool = True,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        assert command[0] == sys.executable and stdout == subprocess.PIPE and text
        reads, writes = os.pipe()
        output, prints = os.pipe()
        theirs = {0: DupFd(reads), 1: DupFd(prints)}
        if stderr == subprocess.STDOUT:
            theirs[2] = DupFd(prints)
        self.process = FORKS.Process(
            target=_python, args=(list(command[1:]), cwd, theirs, dict(env)), daemon=False
        )
        self.process.start()
        os.close(reads)
        os.close(prints)
        self.stdin: IO[str] = os.fdopen(writes, "w")
        self.stdout: IO[str] = os.fdopen(output)
        if stdin is None:
            self.stdin.close()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def wait(self) -> int:
        """The exit code, once it has ended."""
        return exit_code(self.process)


def _python(
    arguments: list[str], folder: Path, streams: Mapping[int, Any], environment: Mapping[str, str]
) -> None:
    multiprocessing.set_start_method("fork", force=True)
    torch.set_num_threads(1)
    for handle, stream in streams.items():
        os.dup2(stream.detach(), handle)
    # As in a new process; the server may have been started without buffers.
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8"), os.fdopen(1, "w", encoding="utf-8")
    os.environ.update(environment)
    os.chdir(folder)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        # It runs anew, of which runpy would warn.
        sys.modules.pop(f"{arguments[1]}.__main__", None)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
