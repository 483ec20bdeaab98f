"""What a server, a proxy or a slip of the user must not cost: answers, files, the key."""

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.serving import remote_teachers
from tests.helpers.serving.chat_server import ChatServer
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.recipes.remote_teacher import Answer, Client, counts

# One after the other, so that the order of the answers is known.
ask = partial(remote_teachers.ask, concurrency=1)
teacher = partial(remote_teachers.teacher, concurrency=1)
KEY = "sk/test+0123456789"
TEXTS = [f"line {number}" for number in range(40)]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def call(server: ChatServer, source: Path, output: Path, *more: str) -> int:
    """The exit code of the command."""
    own = [f"server={server.url}", "model_name=m", "backoff=0.01", "concurrency=1"]
    return main(
        ["ask", *own, f"input={source}", "source=en", "target=de", f"output={output}", *more]
    )


@pytest.mark.parametrize("status", ["400", "413", "422"])
def test_a_server_that_rejects_all_lines_loses_none(
    server: ChatServer, tmp_path: Path, status: str
) -> None:
    server.fault = lambda text, number: "" if server.asked.total() < 9 else status
    with pytest.raises(InputError, match=rf"8 lines in a row have no answer \(status {status}: "):
        ask(server, TEXTS, tmp_path / "a")
    # The same request has the same fault, and is not tried again.
    assert server.asked[TEXTS[9]] == 1
    assert len((tmp_path / "a").read_text().splitlines()) == 9
    server.fault = lambda text, number: ""
    found = ask(server, TEXTS, tmp_path / "a")
    assert [found[text].texts for text in TEXTS] == [[text.upper()] for text in TEXTS]


def test_one_rejected_line_does_not_stop_a_call(server: ChatServer, tmp_path: Path) -> None:
    server.fault = lambda text, number: "400" if text == TEXTS[0] else ""
    for asked in (1, 2):
        found = ask(server, TEXTS[:3], tmp_path / "a")
        assert counts(found.values()).startswith("status 400 1, answered 2, ")
        assert [server.asked[text] for text in TEXTS[:3]] == [asked, 1, 1]


def test_many_long_lines_in_a_row_are_no_outage(server: ChatServer, tmp_path: Path) -> None:
    server.fault = lambda text, number: "413" if 1 <= int(text.split()[1]) < 21 else ""
    for asked in (1, 2):
        found = ask(server, TEXTS, tmp_path / "a")
        assert counts(found.values()).startswith("answered 20, status 413 20, ")
        assert {server.asked[text] for text in TEXTS[1:21]} == {asked}
        # After each eighth of them, the server has been asked for a line that it had answered.
        assert server.asked.total() == 20 + 22 * asked
    # Without such a line there is no way to know.
    with pytest.raises(InputError, match="8 lines in a row"):
        ask(server, TEXTS[1:21], tmp_path / "b")


def test_a_message_names_no_key_where_there_is_none(server: ChatServer) -> None:
    server.fault = lambda text, number: "404"
    with pytest.raises(InputError, match=r"check the address and the model$"):
        Client(teacher(server.url, api_key_env=None)).ask("a")


@pytest.mark.parametrize("escaped", [KEY.replace("/", r"\/"), r"\u0073k\/test\u002B0123456789"])
def test_a_key_with_escapes_is_masked(server: ChatServer, escaped: str) -> None:
    client = Client(teacher(server.url))
    server.translate = lambda text, n: [r'a\b "KEY" in JSON']
    server.encode = lambda values: json.dumps(values).replace("KEY", escaped)
    assert client.ask("b").texts == [r'a\b "***" in JSON']
    # Some servers put the JSON that they were sent into a text of their own.
    server.translate = lambda text, n: [json.dumps({"key": "KEY"})]
    server.encode = lambda values: json.dumps(values).replace("KEY", json.dumps(escaped)[1:-1])
    assert client.ask("c").texts == ['{"key": "***"}']
    server.fault = lambda text, number: "400"
    server.encode = lambda values: " " * 1990 + f'{{"error": "{escaped} is wrong'
    assert client.ask("d").fault == 'status 400: {"error": "*** is wrong'
    server.fault = lambda text, number: "403"
    with pytest.raises(InputError, match=r'answers 403 \(\{"error": "\*\*\* is wrong\)'):
        client.ask("e")


def test_a_key_without_https_goes_to_no_proxy(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Proxy(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            seen.append(str(self.headers))
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        try:
            assert Client(teacher(server.url)).ask("a").texts == ["A"]
            assert seen == []
            # A request without a key may go there.
            with pytest.raises(InputError, match="answers 404"):
                Client(teacher(server.url, api_key_env=None)).ask("a")
        finally:
            proxy.shutdown()
            thread.join(20)
    assert len(seen) == 1 and KEY not in seen[0]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": None, "completion_tokens": 2}, (0, 2)),
        ({"prompt_tokens": "many"}, (0, 0)),
        ({"prompt_tokens": float("inf")}, (0, 0)),
        ([1], (0, 0)),
        (None, (0, 0)),
    ],
)
def test_an_answer_is_kept_whatever_its_usage_is(usage: Any, tokens: tuple[int, int]) -> None:
    values = {"choices": [{"message": {"content": "a"}}], "usage": usage}
    assert teacher("http://localhost").read(values) == Answer(["a"], None, tokens)


def test_the_order_of_parameters_asks_nothing_again() -> None:
    parameters = {"top_p": 1, "logit_bias": {5: 1, "6": 2}}
    turned = {"logit_bias": {"6": 2, 5: 1}, "top_p": 1}
    hashes = {
        teacher("http://localhost", parameters=values).request_hash("a")
        for values in (parameters, turned, {**parameters, "top_p": 0})
    }
    assert len(hashes) == 2


def test_no_input_is_overwritten(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("source.txt", "target.txt", "left_out.jsonl", "in.en")]
    for file in files:
        file.write_text("{text}\n")
    (tmp_path / "link").symlink_to(tmp_path)
    for source, more in (
        (files[0], []),
        (tmp_path / "link" / "source.txt", []),
        (files[3], [f"reference={files[1]}", "candidates=2"]),
        (files[3], [f"prompt={files[2]}"]),
        (files[3], [f"answers={files[3]}"]),
        (files[3], [f"answers={files[0]}"]),
    ):
        assert call(server, source, tmp_path, *more) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert "would be overwritten; give another output= or answers=" in message
    assert {file.read_text() for file in files} == {"{text}\n"} and not server.asked


@pytest.mark.parametrize("text", ["one line without an end", "two\nlines", '{"line": 1, "fault'])
def test_a_file_of_something_else_is_not_cut(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    source, answers = tmp_path / "in.en", tmp_path / "mine"
    source.write_text("a\n")
    answers.write_text(text)
    assert call(server, source, tmp_path / "out", f"answers={answers}") == 2
    assert f"{answers} was not written by such a call" in capsys.readouterr().err
    assert answers.read_text() == text and not server.asked
    # The beginning of an answer is of a process that was killed.
    for start in ("", '{"ha', '{"hash": "0123'):
        answers.write_text(start)
        assert call(server, source, tmp_path / "out", f"answers={answers}") == 0
        assert json.loads(answers.read_text())["texts"] == ["A"]


def test_too_many_lines_without_an_answer(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in.en", tmp_path / "out"
    # Equal and blank lines do not count.
    source.write_text("".join(f"{text}\n" for text in [*TEXTS[:10], *[TEXTS[0]] * 9, ""]))
    server.fault = lambda text, number: "400" if text in TEXTS[:2] else ""
    assert call(server, source, output) == 2
    message = f"2 of 10 different lines have no answer: {output}/left_out.jsonl tells why; "
    assert message in capsys.readouterr().err
    left_out = [json.loads(line) for line in (output / "left_out.jsonl").read_text().splitlines()]
    assert len(left_out) == 12 and left_out[0]["fault"].startswith("status 400: ")
    assert call(server, source, output, "max_left_out=0.2") == 0
    server.fault = lambda text, number: "400" if text == TEXTS[1] else ""
    assert call(server, source, output) == 0
    assert [server.asked[text] for text in TEXTS[:3]] == [3, 3, 1]
