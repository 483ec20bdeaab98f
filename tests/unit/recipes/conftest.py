"""What the tests of the runner and of plans begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.runs.copies import Copies
from tests.helpers.runs.processes import tiny_overrides
from tests.helpers.serving.chat_server import ChatServer, chatting


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    return Copies(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "mono").write_text("alpha\n")
    return tiny_overrides(folder)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chatting(ChatServer()) as server:
        yield server
