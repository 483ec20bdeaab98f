"""A teacher that is a server, and lines that it is asked for, in this process."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.helpers.serving.chat_server import ChatServer
from transformer.commands.line_files import open_part
from transformer.recipes.remote_teacher import ANSWER_START, Answer, Client, RemoteTeacher, ask_all


def teacher(server: str, **changes: Any) -> RemoteTeacher:
    settings = {"model_name": "m", "backoff": 0.01, "concurrency": 4, **changes}
    return RemoteTeacher(server=server, source="en", target="de", **settings)


def ask(server: ChatServer, texts: list[str], path: Path, **changes: Any) -> dict[str, Answer]:
    """The answers, which are kept in a file."""
    with ExitStack() as stack:
        client = Client(teacher(server.url, **changes))
        return ask_all(
            client, texts, open_part(path, stack, ANSWER_START)[0], lambda done, counts: None
        )
