"""A teacher that is a server: what is asked, what counts as an answer, what is asked again."""

import json
import re
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.runs.plans import plan, refused
from tests.helpers.serving.chat_server import REFUSED, ChatServer, now_and_then
from tests.helpers.serving.remote_teachers import ask, teacher
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.recipes.remote_teacher import Answer, Client, RemoteTeacher

KEY = "sk-test-0123456789abcdef"
TEXTS = [f"line {number}" for number in range(40)]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


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
        ([choice("Entschuldigung, ich kann nicht.")], ["Entschuldigung, ich kann nicht."], None),
        ([choice("I'm sorry, I can't come.")], ["I'm sorry, I can't come."], None),
        ([choice("ab", finish_reason="length")], [], "cut off"),
        ([choice("Here it is:\nHallo")], [], "not one line"),
        ([choice("half \ud800")], [], "not one line"),
        ([choice(" ")], [], "empty"),
        ([], [], "empty"),
        ([{"text": "old"}], [], "unknown format"),
        (None, [], "unknown format"),
    ],
)
def test_what_counts_as_an_answer(choices: Any, texts: list[str], fault: str | None) -> None:
    values = {"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    assert teacher("http://localhost").read(values) == Answer(texts, fault, (3, 2))
    assert teacher("http://localhost").read([1]).fault == "unknown format"


def test_what_is_asked() -> None:
    prompt = "{source} {target} {text} {other} }"
    one = teacher("http://localhost/v1/", prompt=prompt, parameters={"temperature": 0})
    content = "English German a {source} b {other} }"
    messages = [{"role": "user", "content": content}]
    assert one.request("a {source} b") == {"model": "m", "messages": messages, "temperature": 0}
    chat = "/v1/chat/completions"
    for address in ("http://localhost", "http://localhost/v1", f"http://localhost{chat}"):
        assert teacher(address).url == f"http://localhost{chat}"
    assert teacher("https://[::1]:8/x/v2").url == "https://[::1]:8/x/v2/chat/completions"
    ours = RemoteTeacher(server="http://localhost:5000/translate", source="en", target="de")
    assert ours.request("a") == {"q": "a", "source": "en", "target": "de", "format": "text"}
    assert ours.url == ours.server and ours.read({"translatedText": "b"}).texts == ["b"]
    # All that changes an answer changes the hash, and nothing else does.
    others: list[dict[str, Any]] = [{"prompt": "{text}"}, {"model_name": "n"}, {"candidates": 2}]
    hashes = {teacher("http://localhost", **changes).request_hash("a") for changes in others}
    same = [teacher(f"http://localhost{end}", tries=2) for end in ("", "/v1")]
    assert len({*hashes, *(each.request_hash("a") for each in same)}) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server": "ftp://a"}, "server= must be as http"),
        ({"server": f"https://user:{KEY}@a/v1"}, "server= must be as http"),
        ({"server": f"https://a/v1?key={KEY}"}, "server= must be as http"),
        ({"server": "http://a:port"}, "server= must be as http"),
        ({"api_key_env": KEY}, "api_key_env= must be the name"),
        ({"model_name": None}, "a chat API needs model_name=NAME"),
        ({"prompt": "text"}, "a chat API needs model_name=NAME, and {text}"),
        ({"server": "http://localhost/translate"}, "model_name=, prompt=, parameters= and"),
        ({"tries": 0}, "tries=0 must be at least 1"),
        ({"parameters": {"n": 2, "stream": True, "top_p": 1}}, "parameters= cannot set n, stream;"),
        ({"max_left_out": 1.5}, "max_left_out=1.5 must be from 0 to 1"),
    ],
)
def test_wrong_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        teacher(**{"server": "http://localhost", **changes})
    assert KEY not in str(error.value)


def test_nothing_is_lost_and_nothing_asked_twice(server: ChatServer, tmp_path: Path) -> None:
    server.fault = now_and_then(0.6)
    texts = [*TEXTS, "", TEXTS[3]]
    found = ask(server, texts, tmp_path / "a")
    assert {text: answer.texts for text, answer in found.items()} == {
        text: [text.upper()] for text in TEXTS
    }
    assert max(server.asked.values()) > 2 and {*server.answered.values()} == {1}
    lines = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert sorted(line["line"] for line in lines) == [1, 2, 3, *range(5, 41), 42]
    assert sum(answer.tokens[0] for answer in found.values()) <= 10 * server.asked.total()
    # A process was killed while it wrote the last line.
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:-9])
    server.asked.clear()
    server.fault = lambda text, number: ""
    assert ask(server, texts, tmp_path / "a") == found | {
        text: found[text]._replace(tokens=(10, 5)) for text in server.asked
    }
    assert sum(server.asked.values()) == 1


def test_lines_without_an_answer_are_given_up(server: ChatServer, tmp_path: Path) -> None:
    faults = {TEXTS[1]: "refusal", TEXTS[2]: "empty", TEXTS[3]: "500", TEXTS[4]: "cut"}
    server.fault = lambda text, number: faults.get(text, "")
    found = ask(server, TEXTS[:6], tmp_path / "a", tries=3)
    assert [found[text].fault for text in TEXTS[:6]] == [
        *(None, "refusal", "empty", found[TEXTS[3]].fault, "cut JSON", None)
    ]
    assert (found[TEXTS[3]].fault or "").startswith("status 500: {")
    assert {server.asked[text] for text in faults} == {3}
    assert found[TEXTS[1]].tokens == (30, 15)
    # A later call asks again where the fault was transient.
    server.fault = lambda text, number: ""
    found = ask(server, TEXTS[:6], tmp_path / "a", tries=3)
    assert [found[text].fault for text in TEXTS[:6]] == [*(None, "refusal", "empty"), *[None] * 3]
    assert sum(server.asked.values()) == 2 + 4 * 3 + 2
    (tmp_path / "a").write_text('{"hash": "1"}\n')
    with pytest.raises(InputError, match=r"a: a line is no answer \('texts'\); remove it"):
        ask(server, TEXTS, tmp_path / "a")


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


def test_a_redirection_does_not_get_the_key(server: ChatServer) -> None:
    seen: list[dict[str, str]] = []

    class Redirecting(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{listening.server_port}/x")
            self.end_headers()

        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            self.send_error(404)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Redirecting)
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    with pytest.raises(InputError, match="answers 404"):
        Client(teacher(f"http://127.0.0.1:{listening.server_port}")).ask("a")
    listening.shutdown()
    listening.server_close()
    thread.join(20)
    assert len(seen) == 1 and KEY not in str(seen)


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
    assert main([*call, "candidates=2"]) == 2
    assert "candidates=N goes with one of reference=FILE and reverse" in capsys.readouterr().err
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
    source.write_text("no\n", encoding="utf-8")
    assert main(call) == 2
    assert "1 of 1 different lines have no answer" in capsys.readouterr().err


@pytest.mark.thorough
def test_the_stages_of_other_teachers(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.src"
    more.write_text("alpha\n")
    call = ["recipe=distill", *base, "output=r", "clean=true"]
    asked = ["teacher=http://localhost:1/v1", f"monolingual={more}", "interpolation=3"]
    settings = ["translate.model_name=m", "translate.source=en", "clean.filters.copy=false"]
    stages = plan([*call, *asked, *settings], capsys)
    assert list(stages) == [
        *("01_text", "02_translate", "03_clean", "04_translate_monolingual"),
        *("05_clean_monolingual", "06_student", "07_evaluate"),
    ]
    train, mono = stages["02_translate"], stages["04_translate_monolingual"]
    assert {"candidates=3", "reference=r/01_text/train.tgt", "source=en", "target=tgt"} < {*train}
    assert "answers=r/answers.jsonl" in train and "filters.copy=false" in stages["03_clean"]
    assert f"input={more}" in mono and not any(one.startswith("reference") for one in mono)
    student = " ".join(stages["06_student"])
    assert "train:[r/03_clean/source.txt,r/03_clean/target.txt]" in student
    assert "train:[r/05_clean_monolingual/source.txt" in student
    folder = tmp_path / "made"
    folder.mkdir()
    for name in ("train.src", "train.tgt", "all.tsv", "all.tgt"):
        (folder / name).write_text("a\tb\n" if name == "all.tsv" else "a\n")
    for name, files in {
        "": f"{folder}/train.src,{folder}/train.tgt",
        "/all.tsv": f"{folder}/all.tsv",
        "/all.tgt": f"r/01_text/train.src,{folder}/all.tgt",
    }.items():
        stages = plan([*call[:-1], f"teacher={folder}{name}", "text=distilled"], capsys)
        assert list(stages) == ["01_text", "02_student", "03_evaluate"]
        assert f"data.train=[{files}]" in stages["02_student"]
    assert "files translate no" in refused([*call, f"teacher={folder}", "interpolation=2"], capsys)
    assert "are both given" in refused([*call, "teacher=a", "teachers=2"], capsys)
    wrong = refused([*call, *asked, "translate.candidates=2"], capsys)
    assert wrong.startswith("translate.candidates cannot be set")
