"""A teacher that is a server: its requests, answers and faults; what is asked again; the key."""

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.serving.chat_server import REFUSED, ChatServer, chatting, now_and_then
from tests.helpers.serving.remote_teachers import ask, teacher
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.recipes.remote_teacher import Answer, Client, RemoteTeacher, counts

KEY = "sk/test+0123456789"
TEXTS = [f"line {number}" for number in range(40)]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chatting(ChatServer()) as server:
        yield server


def call(server: ChatServer, source: Path, output: Path, *more: str) -> int:
    """The exit code of the command."""
    own = [f"server={server.url}", "model_name=m", "backoff=0.01", "concurrency=1"]
    return main(
        ["ask", *own, f"input={source}", "source=en", "target=de", f"output={output}", *more]
    )


def choice(text: str | None, **more: Any) -> dict[str, Any]:
    return {"message": {"content": text, **more.pop("message", {})}, **more}


@pytest.mark.parametrize(
    ("choices", "texts", "fault"),
    [
        ([choice(" Hallo. \n")], ["Hallo."], None),
        ([choice("a"), choice(REFUSED), choice("b")], ["a", "b"], None),
        ([choice(REFUSED)], [], "refusal"),
        ([choice("As an AI language model, I have no opinion.")], [], "refusal"),
        ([choice(None, message={"refusal": "no"})], [], "refusal"),
        ([choice("ab", finish_reason="content_filter")], [], "refusal"),
        ([choice("I'm sorry, I can't come.")], ["I'm sorry, I can't come."], None),
        ([choice("ab", finish_reason="length")], [], "cut off"),
        ([choice("half \ud800")], [], "not one line"),
        ([choice(" ")], [], "empty"),
        ([], [], "empty"),
        (None, [], "unknown format"),
    ],
)
def test_what_counts_as_an_answer(choices: Any, texts: list[str], fault: str | None) -> None:
    values = {"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    assert teacher("http://localhost").read(values) == Answer(texts, fault, (3, 2))
    # An answer is kept whatever its usage is.
    for usage, tokens in (
        ({"prompt_tokens": None, "completion_tokens": 2}, (0, 2)),
        ({"prompt_tokens": float("inf")}, (0, 0)),
        ([1], (0, 0)),
    ):
        answer = teacher("http://localhost").read(values | {"usage": usage})
        assert answer == Answer(texts, fault, tokens)


def test_what_is_asked() -> None:
    prompt = "{source} {target} {text} {other} }"
    chat = teacher("http://localhost/v1/", prompt=prompt, parameters={"temperature": 0})
    content = "English German a {source} b {other} }"
    messages = [{"role": "user", "content": content}]
    assert chat.request("a {source} b") == {"model": "m", "messages": messages, "temperature": 0}
    path = "/v1/chat/completions"
    for address in ("http://localhost", "http://localhost/v1", f"http://localhost{path}"):
        assert teacher(address).url == f"http://localhost{path}"
    plain = RemoteTeacher(server="http://localhost:5000/translate", source="en", target="de")
    assert plain.request("a") == {"q": "a", "source": "en", "target": "de", "format": "text"}
    assert plain.url == plain.server and plain.read({"translatedText": "b"}).texts == ["b"]
    # All that changes an answer changes the hash, and nothing else does.
    changes: list[dict[str, Any]] = [
        {},
        {"prompt": "{text}"},
        {"model_name": "n"},
        {"candidates": 2},
        {"parameters": {"logit_bias": {5: 1, "6": 2}}},
    ]
    same: list[dict[str, Any]] = [{"tries": 2}, {"parameters": {"logit_bias": {"6": 2, 5: 1}}}]
    hashes = [teacher("http://a", **change).request_hash("a") for change in changes]
    assert len({*hashes}) == 5
    assert {teacher("http://a/v1", **change).request_hash("a") for change in same} < {*hashes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": "ftp://a"}, "server= must be as http"),
        ({"server": f"https://user:{KEY}@a/v1"}, "server= must be as http"),
        ({"api_key_env": KEY}, "api_key_env= must be the name"),
        ({"prompt": "text"}, "a chat API needs model_name=NAME, and {text}"),
        ({"server": "http://localhost/translate"}, "model_name=, prompt=, parameters= and"),
        ({"tries": 0}, "tries=0 must be at least 1"),
        ({"parameters": {"n": 2, "stream": True, "top_p": 1}}, "parameters= cannot set n, stream;"),
    ],
)
def test_wrong_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        teacher(**{"server": "http://localhost", **changes})
    assert KEY not in str(error.value)


def test_nothing_is_lost_and_nothing_asked_twice(server: ChatServer, tmp_path: Path) -> None:
    server.fault = now_and_then(0.6)
    texts = [*TEXTS, "", TEXTS[3]]
    file = tmp_path / "answers"
    answers = ask(server, texts, file)
    for text in TEXTS:
        assert answers[text].texts == [text.upper()]
    assert max(server.asked.values()) > 2 and {*server.answered.values()} == {1}
    lines = [json.loads(line)["line"] for line in file.read_text().splitlines()]
    assert sorted(lines) == [1, 2, 3, *range(5, 41), 42]
    # A process was killed while it wrote the last line.
    file.write_bytes(file.read_bytes()[:-9])
    server.asked.clear()
    server.fault = lambda text, number: ""
    again = ask(server, texts, file)
    [text] = server.asked
    assert again == answers | {text: answers[text]._replace(tokens=(10, 5))}
    assert server.asked[text] == 1


def test_lines_without_an_answer_are_given_up(server: ChatServer, tmp_path: Path) -> None:
    faults = {TEXTS[1]: "refusal", TEXTS[2]: "empty", TEXTS[3]: "500", TEXTS[4]: "cut"}
    server.fault = lambda text, number: faults.get(text, "")
    answers = ask(server, TEXTS[:6], tmp_path / "a", tries=3)
    assert (answers[TEXTS[3]].fault or "").startswith("status 500: {")
    del answers[TEXTS[3]]
    assert [a.fault for a in answers.values()] == [None, "refusal", "empty", "cut JSON", None]
    assert {server.asked[text] for text in faults} == {3}
    assert answers[TEXTS[1]].tokens == (30, 15)
    # A later call asks again where the fault was transient.
    server.fault = lambda text, number: ""
    answers = ask(server, TEXTS[:6], tmp_path / "a", tries=3)
    assert [a.fault for a in answers.values()] == [None, "refusal", "empty", None, None, None]
    assert sum(server.asked.values()) == 2 + 4 * 3 + 2
    (tmp_path / "a").write_text('{"hash": "1"}\n')
    with pytest.raises(InputError, match=r"a: a line is no answer \('texts'\); remove it"):
        ask(server, TEXTS, tmp_path / "a")


def test_a_server_that_rejects_all_lines_loses_none(server: ChatServer, tmp_path: Path) -> None:
    server.fault = lambda text, number: "" if server.asked.total() < 9 else "422"
    with pytest.raises(InputError, match=r"8 lines in a row have no answer \(status 422: "):
        ask(server, TEXTS, tmp_path / "a", concurrency=1)
    # The same request has the same fault, and is not tried again.
    assert server.asked[TEXTS[9]] == 1
    assert len((tmp_path / "a").read_text().splitlines()) == 9
    server.fault = lambda text, number: ""
    answers = ask(server, TEXTS, tmp_path / "a", concurrency=1)
    assert [answers[text].texts for text in TEXTS] == [[text.upper()] for text in TEXTS]


def test_many_long_lines_in_a_row_are_no_outage(server: ChatServer, tmp_path: Path) -> None:
    server.fault = lambda text, number: "413" if 1 <= int(text.split()[1]) < 21 else ""
    for asked in (1, 2):
        answers = ask(server, TEXTS, tmp_path / "a", concurrency=1)
        assert counts(answers.values()).startswith("answered 20, status 413 20, ")
        assert {server.asked[text] for text in TEXTS[1:21]} == {asked}
        # After each eighth of them, the server has been asked for a line that it had answered.
        assert server.asked.total() == 20 + 22 * asked
    # Without such a line there is no way to know.
    with pytest.raises(InputError, match="8 lines in a row"):
        ask(server, TEXTS[1:21], tmp_path / "b", concurrency=1)


def test_a_server_that_goes_ends_the_call(server: ChatServer, tmp_path: Path) -> None:
    server.fault = lambda text, number: "" if int(text.split()[1]) < 9 else "500"
    with pytest.raises(InputError, match=r"8 lines in a row .*status 500.*command resumes"):
        ask(server, TEXTS, tmp_path / "a", tries=2)
    assert len((tmp_path / "a").read_text().splitlines()) == 9
    with pytest.raises(InputError, match="Connection refused; start the server, or correct"):
        Client(teacher("http://127.0.0.1:9", tries=2)).ask("a")


def test_what_a_server_wants_counts(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    client = Client(teacher(server.url, timeout=0.1))
    monkeypatch.setattr(client.stop, "wait", waits.append)
    server.retry_after = "7"
    server.fault = lambda text, number: ["429", "500", "slow", ""][number]
    assert client.ask("a").texts == ["A"]
    assert waits[0] == 0 and all(6 < wait <= 7 for wait in waits[1:3]) and len(waits) == 4
    server.retry_after = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert client.ask("b").texts == ["B"]
    assert 80 < waits[5] <= 90


def test_a_key_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch, server: ChatServer) -> None:
    client = Client(teacher(server.url))
    server.fault = lambda text, number: "401"
    with pytest.raises(InputError, match=r"answers 401 .*the key in OPENAI_API_KEY") as error:
        client.ask("a")
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert "Bearer ***" in str(error.value) and KEY not in str(error.value)
    server.fault = lambda text, number: ""
    server.translate = lambda text, n: [f"{text} {KEY}"]
    assert client.ask("a").texts == ["a ***"]
    with pytest.raises(InputError, match="give https:// for the key in OPENAI_API_KEY"):
        Client(teacher("http://10.0.0.1/v1"))
    Client(teacher("http://10.0.0.1/v1", api_key_env=None))
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel-schlüssel")
    with pytest.raises(InputError, match="characters that no key has") as error:
        Client(teacher(server.url))
    assert "schl" not in str(error.value)


def test_a_redirection_does_not_get_the_key() -> None:
    headers: list[str] = []

    class Redirecting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/x")
            self.end_headers()

        def do_GET(self) -> None:
            headers.append(str(self.headers))
            self.send_error(404)

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(InputError, match="answers 404"):
            Client(teacher(f"http://127.0.0.1:{server.server_port}")).ask("a")
        server.shutdown()
    assert len(headers) == 1 and KEY not in headers[0]


def test_a_key_without_https_goes_to_no_proxy(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert Client(teacher(server.url)).ask("a").texts == ["A"]
    with pytest.raises(InputError, match="Connection refused"):
        Client(teacher(server.url, api_key_env=None)).ask("a")


def test_ask_writes_the_pairs_that_have_an_answer(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference, prompt = (tmp_path / name for name in ("in.en", "in.de", "prompt"))
    source.write_text("a b c d\n\nno\nx y z w\n", encoding="utf-8")
    reference.write_text("A B C D\n\nNEIN\nX Y Z W\n", encoding="utf-8")
    prompt.write_text("dog => Hund\n{source} to {target}: {text}\n", encoding="utf-8")
    server.fault = lambda text, number: "refusal" if text == "no" else ""
    server.translate = lambda text, n: ["other words here", text.upper(), "nothing"][:n]
    call = [f"server={server.url}", "model_name=m", f"prompt={prompt}", f"input={source}"]
    call = ["ask", *call, "source=en", "target=de", f"output={tmp_path}/out", "concurrency=1"]
    assert main([*call, "candidates=2", f"reference={reference}", "max_left_out=0.4"]) == 0
    out = tmp_path / "out"
    assert (out / "source.txt").read_text() == "a b c d\nx y z w\n"
    assert (out / "target.txt").read_text() == "A B C D\nX Y Z W\n"
    left_out = [json.loads(line) for line in (out / "left_out.jsonl").read_text().splitlines()]
    assert [(line["line"], line["fault"]) for line in left_out] == [(2, "blank"), (3, "refusal")]
    printed = capsys.readouterr()
    assert "answered 2, refusal 1, tokens in 80, tokens out 50" in printed.out
    assert server.bodies[0]["messages"][0]["content"] == "dog => Hund\nEnglish to German: a b c d"
    assert KEY not in printed.out + printed.err + "".join(f.read_text() for f in out.iterdir())
    for file in (f"answers={source}", f"answers={out}/target.txt", f"input={out}/source.txt"):
        assert main([*call, file]) == 2
        assert "would be overwritten" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["one line without an end", '{"line": 1, "fault'])
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
    for start in ("", '{"ha'):
        answers.write_text(start)
        assert call(server, source, tmp_path / "out", f"answers={answers}") == 0
        assert json.loads(answers.read_text())["texts"] == ["A"]


def test_too_many_lines_without_an_answer(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.en"
    output = tmp_path / "out"
    # Equal and blank lines do not count.
    source.write_text("".join(f"{text}\n" for text in [*TEXTS[:10], *[TEXTS[0]] * 9, ""]))
    server.fault = lambda text, number: "400" if text in TEXTS[:2] else ""
    assert call(server, source, output) == 2
    assert "2 of 10 different lines have no answer" in capsys.readouterr().err
    left_out = (output / "left_out.jsonl").read_text().splitlines()
    assert len(left_out) == 12 and json.loads(left_out[0])["fault"].startswith("status 400: ")
    assert call(server, source, output, "max_left_out=0.2") == 0
    assert [server.asked[text] for text in TEXTS[:3]] == [2, 2, 1]
