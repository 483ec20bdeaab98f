"""A server as teacher, in processes that are killed: nothing is lost, and its key stays hidden."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.helpers.runs.processes import PROJECT, tiny_overrides
from tests.helpers.serving.chat_server import ChatServer, chatting, now_and_then

pytestmark = pytest.mark.thorough

KEY = "sk-proj-5ecretIsAKeyOfNobody42"
CONCURRENCY = 4


def start(call: list[str], home: Path) -> subprocess.Popen[bytes]:
    """The command, with the key in its environment; its output is added to ``home/log``."""
    path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    with open(home / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "transformer", *call],
            cwd=home,
            env={**os.environ, "OPENAI_API_KEY": KEY, "PYTHONPATH": path},
            stdout=log,
            stderr=log,
        )


def kill_after(process: subprocess.Popen[bytes], server: ChatServer, answers: int) -> None:
    """SIGKILL once the server has given so many answers."""
    until = time.monotonic() + 240
    while server.answered.total() < answers and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:-1]


def test_ask_is_killed_twice_and_asks_nothing_again(tmp_path: Path) -> None:
    texts = [f"line {number}" for number in range(120)]
    (tmp_path / "in.en").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    refused = set(texts[::40])

    def fault(text: str, number: int) -> str:
        return "refusal" if text in refused else now_and_then(0.4)(text, number)

    with chatting(ChatServer(fault, delay=0.05)) as server:
        call = ["ask", f"server={server.url}", "model_name=m", "input=in.en", "source=en"]
        call += ["target=de", "output=out", "backoff=0.05", f"concurrency={CONCURRENCY}"]
        for answers in (30, 70):
            kill_after(start(call, tmp_path), server, answers)
        assert start(call, tmp_path).wait() == 0, (tmp_path / "log").read_text()
    kept = [text for text in texts if text not in refused]
    assert lines(tmp_path / "out" / "source.txt") == kept
    assert lines(tmp_path / "out" / "target.txt") == [text.upper() for text in kept]
    left_out = map(json.loads, lines(tmp_path / "out" / "left_out.jsonl"))
    assert [(one["line"], one["fault"]) for one in left_out] == [
        (number, "refusal") for number in (1, 41, 81)
    ]
    # Only what was on its way at a SIGKILL may have been answered twice.
    assert set(server.answered) == set(kept)
    assert server.answered.total() - len(kept) <= 2 * CONCURRENCY
    assert len(lines(tmp_path / "out" / "answers.jsonl")) == len(texts)


def test_distill_resumes_and_shows_the_key_nowhere(tmp_path: Path) -> None:
    base = [*tiny_overrides(tmp_path), "trainer.max_steps=4", "trainer.val_check_interval=4"]
    sources = lines(tmp_path / "train.src")
    seen: list[bytes] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(file.read_bytes())
                except OSError:
                    continue

    server = ChatServer(now_and_then(0.4), lambda text, n: [text] * n, delay=0.05)
    with chatting(server):
        call = ["recipe=distill", *base, "output=d", f"teacher={server.url}", "text=distilled"]
        call += ["translate.model_name=m", "translate.backoff=0.05", "translate.concurrency=4"]
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            kill_after(start(call, tmp_path), server, 30)
            code = start(call, tmp_path).wait()
        finally:
            over.set()
            thread.join()
    log = (tmp_path / "log").read_text()
    assert code == 0, log
    assert "02_translate: resumes: " in log
    assert lines(tmp_path / "d" / "02_translate" / "target.txt") == sources
    assert server.answered.total() - len(set(sources)) <= 4
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    secret = KEY.encode()
    assert any(b"teacher=" in command for command in seen)
    assert not [command for command in seen if secret in command]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 20
    assert not [file for file in files if secret in file.read_bytes()]
