"""Runs every test with the shapes in the signatures checked."""

import gc
import os
import platform
from collections.abc import Iterator
from typing import Any
from unittest import mock

# Before torch is imported: tests run side by side, and each is small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# In int8 CTranslate2 overflows by oneDNN, which it takes on AMD, if the processor has no VNNI.
if platform.machine() == "x86_64":
    os.environ.setdefault("CT2_USE_MKL", "1")
# Tests read the text of their own runs, which lies in temporary folders.
os.environ["TRANSFORMER_TRUST"] = "true"

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from tests.helpers.suite.checks import begin_test, check_first_calls, no_checks
from tests.helpers.suite.fork_server import join_server, start_server
from tests.helpers.suite.imports import hide_unused_packages

# Nearly all that is imported and collected stays: to look for garbage there takes seconds.
gc.disable()
hide_unused_packages()
check_first_calls()
install_import_hook("transformer", "beartype.beartype")

# The same code passes or fails alike each time, on a busy machine too; other examples by
# --hypothesis-profile=default.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


INSTALLED_BY = {
    "chromium": "apt-get install chromium",
    "node": "apt-get install npm && npm install --prefix .cache/npm translate@3.1.0 "
    "onnxruntime-web@1.30.0",
}
"""Programs that some tests need, and the command that installs each."""


def pytest_configure(config: pytest.Config) -> None:
    """Let the workers share one fork server."""
    if workerinput := getattr(config, "workerinput", None):
        join_server(workerinput["fork_server"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start it, once; the process that hands the tests to the workers imports none of them."""
    node.workerinput["fork_server"] = start_server()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, one worker takes the files that import transformers."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.helpers.suite.scheduling import Scheduling

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Leave what is imported out of every later collection of garbage, half a second each."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Count in one last line the tests that lack a program, instead of a line for each."""
    stats = terminalreporter.stats
    skipped = stats.get("skipped", [])
    lacking = {
        name: [one for one in skipped if f"needs {name}" in one.longrepr[2]]
        for name in INSTALLED_BY
    }
    stats["skipped"] = [one for one in skipped if not any(one in some for some in lacking.values())]
    yield
    stats["skipped"] = skipped
    if parts := [f"{len(some)} without {name}" for name, some in lacking.items() if some]:
        commands = (command for name, command in INSTALLED_BY.items() if lacking[name])
        terminalreporter.write_line(
            f"skipped {', '.join(parts)}; to run them: {' && '.join(commands)}"
        )


@pytest.fixture(autouse=True, scope="session")
def compositions() -> None:
    """Hydra composes the same call once; imported when the checks of shapes are installed."""
    from tests.helpers.suite.compositions import remember

    remember()


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """What a test or a library writes there, Lightning a cluster's address, ends with the test."""
    begin_test()
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No shapes are checked: what torch traces, it traces checks included."""
    with no_checks():
        yield
