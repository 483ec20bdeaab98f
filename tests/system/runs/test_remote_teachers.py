"""A server as teacher, asked by a process that is killed: nothing is lost, the key stays hidden."""

import time
from pathlib import Path

import pytest

from tests.helpers.runs.processes import start_verb
from tests.helpers.runs.runs import verb
from tests.helpers.serving.chat_server import ChatServer, chatting, now_and_then

KEY = "sk-proj-5ecretIsAKeyOfNobody42"


@pytest.mark.thorough
def test_ask_is_killed_and_asks_nothing_again(tmp_path: Path) -> None:
    texts = [f"line {number}" for number in range(120)]
    (tmp_path / "in.en").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    with chatting(ChatServer(now_and_then(0.4), delay=0.05)) as server:
        call = ["ask", f"server={server.url}", "model_name=m", "input=in.en", "source=en"]
        call += ["target=de", "output=out", "backoff=0.05", "concurrency=4"]
        killed = start_verb(call, tmp_path, OPENAI_API_KEY=KEY)
        while server.answered.total() < 30 and killed.process.is_alive():
            time.sleep(0.01)
        killed.process.kill()
        assert killed.ended()[0] == -9
        code, stdout, stderr = verb(*call, home=tmp_path, OPENAI_API_KEY=KEY)
    assert code == 0, stderr
    assert (tmp_path / "out" / "source.txt").read_text().splitlines() == texts
    translations = (tmp_path / "out" / "target.txt").read_text().splitlines()
    assert translations == [text.upper() for text in texts]
    # Only requests that were on their way at the SIGKILL may have been answered twice.
    assert server.answered.total() - len(texts) <= 4
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert KEY not in stdout + stderr
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not [file for file in files if KEY.encode() in file.read_bytes()]
