"""The server over loopback: real clients, crowds, bad requests, and how it ends."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import deepl
import numpy as np
import pytest
import requests
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from tests.helpers.serving.served import ask, serving
from transformer.decoding.translator import Translator
from transformer.quality.failures.flagging import Flagging
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.thresholds import Thresholds
from transformer.serving.access import Client
from transformer.serving.batch_translation import Options, Sentence, SentenceTranslation

SENTENCES = [source for source, _ in PAIRS]
KEY = "secret"
ANNA = Client("anna", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b")


@pytest.fixture(scope="module")
def model() -> Translator:
    return tiny_translator()


@pytest.fixture(scope="module")
def offline(model: Translator) -> dict[str, str]:
    """The translation of each sentence without a server."""
    found = model.translate(SENTENCES)
    return {text: one.text for text, one in zip(SENTENCES, found, strict=True)}


@pytest.fixture(scope="module")
def url(model: Translator) -> Iterator[str]:
    with serving(translator=model, pairs=[("en", "de"), ("de", "fr")]) as address:
        yield address


def test_clients_of_libretranslate(url: str, offline: dict[str, str]) -> None:
    text = SENTENCES[0]
    plain = LibreTranslateAPI(url + "/")
    assert plain.translate(text, "en", "de") == offline[text]
    assert plain.detect("This is certainly an English sentence.")[0]["language"] == "en"
    # One that is only a target is a language, too.
    targets = {language["code"]: language["targets"] for language in plain.languages()}
    assert targets == {"en": ["de"], "de": ["fr"], "fr": []}
    deep = LibreTranslator("en", "de", api_key="x", custom_url=f"{url}/")
    assert deep.translate(text) == offline[text]
    asked = {"source": "en", "target": "de", "format": "text", "api_key": None}
    other = SENTENCES[1]
    status, answer = ask(f"{url}/translate", asked | {"q": [text, other]})
    assert (status, answer) == (200, {"translatedText": [offline[text], offline[other]]})
    del asked["api_key"]
    whole = f"{text}\r\n\r\n {other}"
    found = f"{offline[text]}\n\n {offline[other]}"
    assert ask(f"{url}/translate", asked | {"q": whole}, form=True) == (
        200,
        {"translatedText": found},
    )
    # A body that nobody reads.
    text = SENTENCES[2]
    page = {"Origin": "https://example.org"}
    query = asked | {"q": text}
    answer = requests.post(f"{url}/translate", b"?", params=query, headers=page, timeout=60)
    assert answer.json() == {"translatedText": offline[text]}
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    files = {name: (None, value) for name, value in (asked | {"q": text}).items()}
    answer = requests.post(f"{url}/translate", files=files, timeout=60)
    assert answer.json() == {"translatedText": offline[text]}


def test_clients_of_deepl(url: str, offline: dict[str, str]) -> None:
    client = deepl.DeepLClient("any-key", server_url=url)
    one, two = client.translate_text(SENTENCES[:2], target_lang="DE", source_lang="EN")
    assert [one.text, two.text] == [offline[text] for text in SENTENCES[:2]]
    assert (one.detected_source_lang, one.billed_characters) == ("EN", len(SENTENCES[0]))
    assert [language.code for language in client.get_target_languages()] == ["DE", "FR"]
    assert [language.code for language in client.get_source_languages()] == ["EN", "DE"]
    with pytest.raises(deepl.DeepLException, match=r"request \(60\) exceeds .* \(50\)") as refused:
        client.translate_text(["a"] * 60, target_lang="DE", source_lang="EN")
    assert refused.value.http_status_code == 413

    made = client.create_glossary("animals", "EN", "DE", {"dog": "katze", "zebra": "hund"})
    assert client.get_glossary_entries(made) == {"dog": "katze", "zebra": "hund"}
    assert [one.glossary_id for one in client.list_glossaries()] == [made.glossary_id]
    asked = {"source_lang": "EN", "target_lang": "DE", "glossary": made}
    assert "katze" in client.translate_text("a dog runs .", **asked).text.split()
    client.delete_glossary(made)
    with pytest.raises(deepl.DeepLException, match="not found"):
        client.translate_text("a dog runs .", **asked)


def test_a_search_without_required_phrases_takes_no_glossary() -> None:
    with serving(
        translator=tiny_translator(algorithm="mbr", candidates=4, beam_size=1, nbest=1)
    ) as address:
        client = deepl.DeepLClient("any", server_url=address)
        with pytest.raises(deepl.DeepLException, match="decoding=beam"):
            client.create_glossary("animals", "EN", "DE", {"dog": "katze"})


def test_deepl_detects_the_language_of_each_text() -> None:
    def name(options: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
        source = options.direction.source
        return [SentenceTranslation(one.text, f"{source}: {one.text}") for one in sentences]

    english, german = "This is an English sentence.", "Das ist ein deutscher Satz."
    with serving(pairs=[("en", "fr"), ("de", "fr")], translate=name) as address:
        client = deepl.DeepLClient("any", server_url=address)
        found = client.translate_text([english, german, english], target_lang="FR")
        # Without letters a text has the language of all.
        [_, number] = client.translate_text([german, "12"], target_lang="FR")
    expected = [("EN", f"en: {english}"), ("DE", f"de: {german}"), ("EN", f"en: {english}")]
    assert [(one.detected_source_lang, one.text) for one in found] == expected
    assert number.detected_source_lang == "DE"


def test_alternatives_links_and_confidence_on_request(url: str, model: Translator) -> None:
    text = " ".join(SENTENCES[:2])
    asked = {"q": text, "source": "auto", "target": "de", "alternatives": 3}
    more = dict.fromkeys(("alignment", "confidence", "attention"), True)
    status, answer = ask(f"{url}/translate", asked | more)
    assert status == 200
    assert answer["detectedLanguage"]["language"] in ("en", "de")
    assert 1 <= len(set(answer["alternatives"]) - {answer["translatedText"]}) <= 3
    one, two = answer["sentences"]
    assert (one["source"], two["source"]) == tuple(SENTENCES[:2])
    [alone] = model.translate([SENTENCES[0]], attention=True)
    assert alone.attention is not None and one["alternatives"]
    seen = one["attention"]
    assert (seen["source_tokens"], seen["tokens"]) == ([*alone.source_tokens], [*alone.tokens])
    assert np.allclose(seen["weights"], alone.attention, atol=6e-4)
    assert {tuple(link) for link in one["alignment"]} <= {
        (s, t) for s in range(4) for t in range(len(one["translation"].split()))
    }
    assert len(one["word_confidence"]) == len(one["translation"].split())
    assert all(0 < probability <= 1 for probability in [one["confidence"], *one["word_confidence"]])

    # The same, a sentence an event as each is finished.
    del asked["alternatives"]
    asked["q"] = f"{text}\n\n{text}"
    whole = ask(f"{url}/translate", asked)[1]["translatedText"]
    events = stream(url, asked | {"confidence": True})
    assert [event["index"] for event in events] == list(range(4))
    assert "".join(event["translatedText"] for event in events) == whole
    assert events[0]["detectedLanguage"] == answer["detectedLanguage"]
    assert events[0]["sentences"][0]["confidence"] == one["confidence"]
    assert stream(url, asked | {"target": "xx"}) == [{"error": "xx is not supported"}]


CHINESE = {
    "今天很好。": {"en": "It is good.", "ja": "今日は良い。"},
    "我们走吧。": {"en": "Let us go.", "ja": "行こう。"},
}


def from_chinese(options: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
    found = [CHINESE.get(one.text, {}).get(options.direction.target, one.text) for one in sentences]
    return [
        SentenceTranslation(one.text, text, alternatives=(f"{text}!",))
        for one, text in zip(sentences, found, strict=True)
    ]


def test_sentences_without_blanks_become_sentences_with_blanks() -> None:
    text = "今天很好。我们走吧。"
    pairs = [("zh", "en"), ("zh", "ja")]
    asked = {"q": text, "source": "zh", "target": "en", "alternatives": 1}
    html = {"q": "<p>今天很好。<b>我们走吧。</b></p>", "format": "html"}
    with serving(pairs=pairs, translate=from_chinese) as address:
        answer = ask(f"{address}/translate", asked)[1]
        events = stream(address, asked)
        japanese = ask(f"{address}/translate", asked | {"target": "ja"})[1]
        marked = ask(f"{address}/translate", asked | html)[1]
    assert answer["translatedText"] == "It is good. Let us go."
    assert answer["alternatives"] == ["It is good.! Let us go.!"]
    assert [event["translatedText"] for event in events] == ["It is good.", " Let us go."]
    assert japanese["translatedText"] == "今日は良い。行こう。"
    assert marked["translatedText"] == "<p>It is good. <b>Let us go.</b></p>"


def stream(url: str, asked: dict[str, Any]) -> list[Any]:
    """The events of an answer, or its error."""
    answer = requests.post(
        f"{url}/translate", json=asked, headers={"Accept": "text/event-stream"}, timeout=60
    )
    if answer.status_code != 200:
        return [answer.json()]
    *events, done = answer.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


GOOD = {"q": "a", "source": "en", "target": "de"}
BAD: list[tuple[Any, str]] = [
    ({"q": "a", "source": "en"}, "missing target parameter"),
    (GOOD | {"q": ["a", 1]}, "q must be a string"),
    (GOOD | {"q": "\ud800"}, "Invalid JSON format"),
    (GOOD | {"alternatives": "9" * 5000}, "is not a number"),
    (GOOD | {"alternatives": 11}, "must be <= 10"),
    (GOOD | {"source": "xx"}, "xx is not supported"),
    (GOOD | {"format": "pdf"}, "pdf format is not supported"),
    (GOOD | {"target": "fr"}, "(fr) is not available as a target language from English (en)"),
    ([1], "Invalid JSON format"),
]


def test_bad_requests_are_refused_by_name(url: str) -> None:
    for values, message in BAD:
        status, answer = ask(f"{url}/translate", values)
        assert status == 400 and message in answer["error"], (values, answer)
    for body in (b"{", b"\xff", b"[" * 100_000):
        answer = requests.post(
            f"{url}/translate", body, headers={"Content-Type": "application/json"}, timeout=60
        )
        assert (answer.status_code, answer.json()) == (400, {"error": "Invalid JSON format"})
    text = {"text": ["a"], "target_lang": "DE"}
    for path, values, status in (
        ("/v2/translate", {"target_lang": "DE"}, 400),
        ("/v2/translate", text | {"target_lang": "XX"}, 400),
        ("/v2/translate", text | {"glossary_id": "x"}, 404),
        ("/v2/glossaries", {"source_lang": "EN", "target_lang": "DE", "entries": "a"}, 400),
    ):
        found, answer = ask(f"{url}{path}", values)
        assert found == status and answer["message"], (path, answer)
    assert ask(f"{url}/detect", {"q": ""})[0] == 400
    assert ask(f"{url}/nowhere") == (404, {"error": "Not Found"})


def test_pages_of_other_origins_may_ask(url: str) -> None:
    asked = {
        "Origin": "http://elsewhere",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,authorization",
    }
    answer = requests.options(f"{url}/translate", headers=asked, timeout=60)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()


def test_files_of_the_page_have_its_policy_and_a_tag(url: str) -> None:
    for path in ("/", "/page/page.js"):
        first = requests.get(url + path, timeout=60)
        headers = {"If-None-Match": first.headers["ETag"]}
        again = requests.get(url + path, headers=headers, timeout=60)
        assert first.content and (first.status_code, again.status_code) == (200, 304)
        assert first.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert ask(f"{url}/page/..%2fpage.py")[0] == 404


def test_a_line_is_a_text_where_no_sentences_are_translated() -> None:
    model = tiny_translator(max_length=2000)
    lines = ["a dog runs . Two cats . " * 40, "question: a {dog} ? context: The dog. A cat.", "7"]
    offline = [translation.text for translation in model.translate(lines)]
    with serving(translator=model, pairs=[("source", "target")], sentences=False) as address:
        asked = {"q": "\n".join(lines), "source": "auto", "target": "target"}
        found = ask(f"{address}/translate", asked)[1]
        assert found["translatedText"] == "{} \n{}\n{}".format(*offline)
        assert found["detectedLanguage"]["language"] == "source"
        html = asked | {"q": f"<p>{lines[1]}</p>", "format": "html"}
        assert ask(f"{address}/translate", html)[1]["translatedText"] == f"<p>{offline[1]}</p>"


def test_failures_are_counted_and_on_request_told(model: Translator) -> None:
    asked = {"q": "a dog runs .", "source": "en", "target": "de"}
    # The model writes signs alone.
    detector = Detector(Thresholds())
    for on_failure, told in ((None, None), ("mark", ["empty"])):
        flagging = Flagging(model, detector, on_failure)
        with serving(translator=model, flagging=flagging) as address:
            for _ in range(2):
                answer = ask(f"{address}/translate", asked | {"alternatives": 2})[1]
                assert answer.get("flags") == told
            html = asked | {"q": f"<p>{asked['q']}</p>", "format": "html"}
            assert ask(f"{address}/translate", html)[1].get("flags") == told
            metrics = requests.get(f"{address}/metrics", timeout=60).text
            assert 'translate_failures_total{flag="empty"} 2.0' in metrics
            # A remembered translation counts once.
            assert "translate_cache_hits_total 1.0" in metrics


def test_keys_and_limits(model: Translator) -> None:
    asked = {"q": SENTENCES[0], "source": "en", "target": "de"}
    with serving(
        translator=model,
        clients=[ANNA],
        **{"characters": 30, "texts": 2, "requests": 7, "body_bytes": 500, "body_seconds": 0.5},
    ) as address:
        translate = f"{address}/translate"
        assert ask(translate, asked)[0] == 400
        assert ask(translate, asked | {"api_key": "wrong"})[0] == 403
        assert ask(f"{address}/v2/usage")[0] == 403
        known = asked | {"api_key": KEY}
        for wrong, error in (
            ({"q": "a" * 31}, "request (31) exceeds text limit (30)"),
            ({"q": ["a"] * 3}, "request (3) exceeds text limit (2)"),
        ):
            assert ask(translate, known | wrong) == (400, {"error": f"Invalid request: {error}"})
        assert ask(translate, known | {"q": "a" * 600})[0] == 413
        assert ask(translate, known | {"q": SENTENCES[:2]})[0] == 200
        header = {"Authorization": f"DeepL-Auth-Key {KEY}"}
        many = {"text": ["a"] * 3, "target_lang": "DE"}
        assert ask(f"{address}/v2/translate", many, **header)[0] == 413
        # Nobody gets another limit by claiming another address.
        status, answer = ask(translate, known, X_Forwarded_For="192.0.2.1")
        assert status == 429 and answer["error"].startswith("Slowdown: ")
        parts = urlparse(address)
        with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=10) as slow:
            slow.sendall(
                b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: text/json\r\n"
                b"Content-Length: 9\r\n\r\n{"
            )
            assert slow.recv(12) == b"HTTP/1.1 408"


def slow_model(seconds: float) -> tuple[Translator, list[int]]:
    """A model that takes so long for each batch after its first, and the sizes of the batches.

    The first is before the start.
    """
    translator = tiny_translator()
    sizes: list[int] = []
    search = translator.searcher

    def slowly(segments: Any) -> Any:
        time.sleep(seconds if sizes else 0)
        sizes.append(len(segments))
        return search(segments)

    return replace(translator, engine=lambda _: slowly), sizes


def test_a_full_queue_and_a_deadline() -> None:
    asked = {"source": "en", "target": "de"}
    with serving(translator=slow_model(0.5)[0], waiting=1, seconds=1.2, cache=0) as address:
        texts = ["a dog " * (8 + number) for number in range(12)]
        with ThreadPoolExecutor(12) as clients:
            answers = clients.map(lambda q: ask(f"{address}/translate", asked | {"q": q}), texts)
            statuses = {status for status, _ in answers}
        assert {200, 429} <= statuses <= {200, 429, 504}
    with serving(translator=slow_model(1.0)[0], waiting=3, seconds=0.3) as address:
        assert ask(f"{address}/translate", asked | {"q": "a dog ."})[0] == 504
        status, answer = ask(f"{address}/translate", asked | {"q": "\n".join("abcd")})
        assert status == 400 and "may have 3 sentences" in answer["error"]


def begun(address: str, **asked: str) -> http.client.HTTPConnection:
    """A connection whose request for a translation has been sent."""
    connection = http.client.HTTPConnection(urlparse(address).netloc, timeout=60)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/translate", json.dumps(asked), headers)
    return connection


def test_a_client_that_hangs_up_is_forgotten() -> None:
    model, sizes = slow_model(0.3)
    with serving(translator=model, cache=0) as address:
        for number in range(8):
            # Short enough for one segment each, so that the sizes count texts.
            begun(address, q="a dog " * (1 + number), source="en", target="de").close()
        assert ask(f"{address}/translate", {"q": "a", "source": "en", "target": "de"})[0] == 200
        # The one before the start, the one that was being translated, and the last.
        assert sum(sizes) <= 4
        gone = 'translate_requests_total{route="/translate",status="499"} 8.0'
        assert gone in requests.get(f"{address}/metrics", timeout=60).text


@pytest.mark.thorough
def test_the_verb_answers_what_it_has_accepted(home: Path) -> None:
    texts = [f"a b c {number}" for number in range(24)]
    offline = [translation.text for translation in Translator.load(home / "run").translate(texts)]
    arguments = ["serve", "checkpoint=run", "port=0", "cache=0"]
    command = [sys.executable, "-m", "transformer", *arguments]
    process = subprocess.Popen(command, cwd=home, text=True, stderr=subprocess.PIPE)
    assert process.stderr
    try:
        # The stream ends if the process does.
        started = next(line for line in process.stderr if line.startswith("translating from src"))
        address = started.rsplit(maxsplit=1)[1]
        connections = [begun(address, q=text, source="src", target="tgt") for text in texts]
        # A later request is answered, so that those before have been accepted.
        assert ask(f"{address}/health") == (200, {"status": "ok"})
        os.kill(process.pid, signal.SIGTERM)
        for connection, expected in zip(connections, offline, strict=True):
            answer = connection.getresponse()
            # The model of a few updates may translate to nothing.
            assert (answer.status, json.loads(answer.read())["translatedText"]) == (200, expected)
        assert process.wait() == 0
    finally:
        process.kill()
