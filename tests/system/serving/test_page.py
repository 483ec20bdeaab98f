"""The page of the server in a real browser: what it shows, by pointer and by keyboard."""

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.decoding.file_translators import file_translator, write_sound
from tests.helpers.decoding.translators import PAIRS, tiny_translator
from tests.helpers.serving.browser import BINARY, Page, browser
from tests.helpers.serving.served import ask, serving
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.serving import languages
from transformer.serving.access import Client

pytestmark = pytest.mark.skipif(BINARY is None, reason="needs chromium, headless")

TEXT = f"{PAIRS[0][0]}\n\n {PAIRS[1][0]}"
OTHER = PAIRS[2][0]
DETAILS = {"source": "en", "target": "de", "alternatives": 3, "alignment": True, "confidence": True}
HOSTILE = "</textarea><script>ran = 1</script>\n<img src=x onerror='ran = 1'> &lt;"


def repeat(segments: Sequence[Segment]) -> list[list[Hypothesis]]:
    """Repeats its input; an alternative lacks some of the first subwords."""
    return [
        [Hypothesis(tuple(segment.subwords[start:]), -float(start), 0.0) for start in range(4)]
        for segment in segments
    ]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    pairs = [("en", "de"), ("de", "en")]
    translator = replace(tiny_translator(nbest=1), engine=lambda _: repeat)
    with (
        pytest.MonkeyPatch.context() as patch,
        serving(translator=translator, pairs=pairs, characters=500) as address,
    ):
        patch.setattr(languages, "torch_engine", lambda _: repeat)
        yield address


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        for domain in ("Network", "Log", "Runtime", "Page"):
            page.call(f"{domain}.enable")
        yield page


@pytest.fixture(scope="module")
def answers(url: str) -> dict[str, Any]:
    """What the server says of each text."""
    return {text: ask(f"{url}/translate", {"q": text, **DETAILS})[1] for text in (TEXT, OTHER)}


def visit(page: Page, url: str) -> None:
    page.events.clear()
    page.resize(1200, 900)
    page.open(url)
    page.wait("document.documentElement.dataset.ready === 'true'")


def write(page: Page, text: str) -> None:
    page.evaluate("document.getElementById('source').select()")
    page.write(text)


def content(page: Page, selector: str) -> list[str]:
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    texts: list[str] = page.evaluate(
        f"{chosen}.filter(element => element.checkVisibility()).map(element => element.textContent)"
    )
    return texts


def wait_for(page: Page, selector: str, text: str) -> None:
    page.wait(f"document.querySelector({json.dumps(selector)}).textContent === {json.dumps(text)}")


def translated(page: Page, text: str, answers: dict[str, Any]) -> None:
    write(page, text)
    wait_for(page, "#target", answers[text]["translatedText"])


def tab_to(page: Page, selector: str) -> None:
    for _ in range(12):
        page.press("Tab")
        if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return
    raise AssertionError(f"Tab does not reach {selector}")


def test_typing_translates_and_markup_is_text(
    page: Page, url: str, answers: dict[str, Any]
) -> None:
    visit(page, url)
    translated(page, TEXT, answers)
    write(page, "a" * 501)
    wait_for(page, "#message span", "The text is too long by 1 characters.")
    page.evaluate("from.value = 'en'; from.dispatchEvent(new Event('change'))")
    translated(page, OTHER, answers)
    assert content(page, "#message") == []
    page.point("#swap", 0.5, 0.5, click=True)
    page.wait(f"source.value === {json.dumps(answers[OTHER]['translatedText'])}")
    assert page.evaluate("[from.value, to.value]") == ["de", "en"]
    # Markup is text, on both sides and in the map.
    write(page, HOSTILE)
    wait_for(page, "#target", HOSTILE)
    page.point("#target [data-word='1']", 0.5, 0.5)
    page.point("#look", 0.5, 0.5, click=True)
    page.wait("document.querySelector('#map canvas') !== null")
    assert page.evaluate("window.ran") is None
    requests = [e["params"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    addresses = {request["request"]["url"] for request in requests}
    assert not [a for a in addresses if not a.startswith((f"{url}/", "about:", "data:image"))]


def choose(page: Page, file: Path) -> None:
    node = page.call("Runtime.evaluate", expression="document.getElementById('file')")
    input_ = node["result"]["objectId"]
    page.call("DOM.setFileInputFiles", files=[str(file)], objectId=input_)


def test_a_file_is_translated(page: Page, url: str, tmp_path: Path) -> None:
    visit(page, url)
    (tmp_path / "b.txt").write_text("a dog")
    choose(page, tmp_path / "b.txt")
    page.wait("document.querySelector('#file-line a') !== null")
    assert content(page, "#file-line") == ["b.txt is translated. Download the translation"]
    address = page.evaluate("document.querySelector('#file-line a').href")
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.read() == b"a dog"


@pytest.fixture(scope="module")
def sound_url() -> Iterator[str]:
    pairs = [("sound", "en"), ("sound", "de")]
    with serving(translator=file_translator(), pairs=pairs) as address:
        yield address


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sound(tmp_path_factory.mktemp("sounds") / "a talk.wav", 10.0)


def test_a_page_without_text_asks_for_a_sound(page: Page, sound_url: str) -> None:
    visit(page, sound_url)
    found = page.evaluate("[source.disabled, source.placeholder, document.activeElement.id]")
    assert found == [True, "Choose a sound, or drop it here", "file-button"]


def test_a_sound_is_translated_by_the_keyboard(page: Page, sound_url: str, sound: Path) -> None:
    [offline] = file_translator().translate([str(sound)])
    assert offline.segments is not None
    visit(page, sound_url)
    choose_by_key(page, sound)
    page.wait("document.querySelector('.segment') !== null")
    assert content(page, "#file-line") == ["a talk.wav is translated."]
    assert content(page, ".segment span") == [one.text for one in offline.segments]
    times = [f"0:{int(one.start):02}" for one in offline.segments]
    assert content(page, ".segment time") == times


def test_a_file_that_is_no_sound(page: Page, sound_url: str, tmp_path: Path) -> None:
    visit(page, sound_url)
    (tmp_path / "a.txt").write_text("no sound")
    choose_by_key(page, tmp_path / "a.txt")
    page.wait("document.querySelector('#file-line').classList.contains('wrong')")
    [message] = content(page, "#file-line")
    assert "a.txt: not a sound that can be read" in message


# The answer for each sound is the model that was asked for, once the test calls answers[NUMBER].
HELD_SOUNDS = """{ const real = window.fetch; window.answers = [];
    window.fetch = (path, options) => path !== 'v1/audio/transcriptions' ? real(path, options)
        : new Promise((resolve) => { const text = options.body.get('model');
            const segments = [{ start: 0, text }];
            answers.push(() => resolve(new Response(JSON.stringify({ text, segments })))); }); }"""


def choose_language(page: Page, code: str) -> None:
    page.evaluate(f"to.value = '{code}'; to.dispatchEvent(new Event('change'))")


def answer_sound(page: Page, number: int) -> None:
    """Answer one, and let the page take it."""
    page.evaluate(f"answers[{number}]()")
    page.evaluate("window.taken = false; setTimeout(() => { window.taken = true; }, 50)")
    page.wait("window.taken")


def hold_sound(page: Page, url: str, sound: Path) -> None:
    """Send a sound, and hold its answer."""
    visit(page, url)
    page.evaluate(HELD_SOUNDS)
    choose(page, sound)
    page.wait("answers.length === 1")


def test_another_language_translates_the_sound_again(
    page: Page, sound_url: str, sound: Path
) -> None:
    hold_sound(page, sound_url, sound)
    answer_sound(page, 0)
    first = page.evaluate("to.value")
    assert content(page, ".segment span") == [f"sound-{first}"]
    other = {"en": "de", "de": "en"}[first]
    choose_language(page, other)
    page.wait("answers.length === 2")
    answer_sound(page, 1)
    assert content(page, ".segment span") == [f"sound-{other}"]


def test_the_last_language_of_a_sound_wins_over_a_late_answer(
    page: Page, sound_url: str, sound: Path
) -> None:
    hold_sound(page, sound_url, sound)
    # Before the first answer, too.
    choose_language(page, "de")
    choose_language(page, "en")
    assert page.evaluate("answers.length") == 3
    answer_sound(page, 1)
    assert content(page, ".segment span") == []
    assert content(page, "#file-line") == ["Translating a talk.wav …"]
    assert page.evaluate("document.getElementById('file-button').disabled")
    answer_sound(page, 2)
    answer_sound(page, 0)
    assert content(page, ".segment span") == ["sound-en"]
    assert not page.evaluate("document.getElementById('file-button').disabled")


def test_a_text_wins_over_the_late_answer_for_a_sound(
    page: Page, url: str, sound: Path, answers: dict[str, Any]
) -> None:
    hold_sound(page, url, sound)
    translated(page, TEXT, answers)
    assert content(page, "#file-line") == []
    answer_sound(page, 0)
    assert content(page, ".segment span") == []
    wait_for(page, "#target", answers[TEXT]["translatedText"])
    assert not page.evaluate("document.getElementById('file-button').disabled")


def choose_by_key(page: Page, file: Path) -> None:
    """Choose a file in the dialog that the focused button opens."""
    page.events.clear()
    page.call("Page.setInterceptFileChooserDialog", enabled=True)
    page.press("Enter")
    end = time.monotonic() + 20
    while not (opened := [e for e in page.events if e["method"] == "Page.fileChooserOpened"]):
        assert time.monotonic() < end
        page.evaluate("0")
    node = opened[0]["params"]["backendNodeId"]
    page.call("DOM.setFileInputFiles", files=[str(file)], backendNodeId=node)
    page.call("Page.setInterceptFileChooserDialog", enabled=False)


def test_a_server_that_wants_a_key(page: Page) -> None:
    clients = [Client("me", hashlib.sha256(b"secret").hexdigest())]
    with serving(clients=clients) as address:
        visit(page, address)
        write(page, OTHER)
        wait_for(page, "#message span", "This server needs an API key: enter it above.")
        page.evaluate("key.focus()")
        page.write("secret")
        page.press("Tab")
        expected = ask(f"{address}/translate", {"q": OTHER, **DETAILS, "api_key": "secret"})[1]
        wait_for(page, "#target", expected["translatedText"])
        assert content(page, "#message") == []
        page.evaluate("sessionStorage.clear()")


# fetch() of the page: the function sees the number of the call, the real call and a refusal.
STUB = """{ const real = window.fetch; let calls = 0; window.done = 0;
    window.fetch = async (path, options) => path === 'translate'
        ? (%s)(calls++, () => real(path, { ...options, signal: undefined }),
            (status, after) => new Response(
            '{"error": "no"}', { status, headers: { 'Retry-After': after } }))
        : real(path, options); }"""

FIRST_IS_SLOW = """async (call, ask) => { const text = await (await ask()).text();
    if (call === 0) await new Promise((resolve) => setTimeout(resolve, 800));
    setTimeout(() => { window.done++; }, 50); return new Response(text); }"""


def test_the_last_text_wins_over_a_late_answer(
    page: Page, url: str, answers: dict[str, Any]
) -> None:
    visit(page, url)
    page.evaluate(STUB % FIRST_IS_SLOW)
    write(page, TEXT)
    page.wait("result.ariaBusy === 'true'")
    translated(page, OTHER, answers)
    page.wait("window.done === 2")
    wait_for(page, "#target", answers[OTHER]["translatedText"])


@pytest.mark.parametrize(
    ("failing", "message"),
    [
        (
            "(call, ask, no) => call ? ask() : no(429, 0)",
            "The server is busy. Trying again in 1 s.",
        ),
        (
            "(call, ask) => { if (call) return ask(); throw new TypeError(); }",
            "The server cannot be reached. Trying again in 1 s.",
        ),
        ("(call, ask, no) => call ? ask() : no(504, 0)", "The translation took too long."),
    ],
)
def test_an_error_passes(
    page: Page, url: str, answers: dict[str, Any], failing: str, message: str
) -> None:
    visit(page, url)
    page.evaluate(STUB % failing)
    write(page, TEXT)
    wait_for(page, "#message span", message)
    if content(page, "#again"):
        page.point("#again", 0.5, 0.5, click=True)
    page.evaluate("dispatchEvent(new Event('online'))")
    wait_for(page, "#target", answers[TEXT]["translatedText"])
    assert content(page, "#message") == []


def test_words_show_their_partners(page: Page, url: str, answers: dict[str, Any]) -> None:
    visit(page, url)
    translated(page, TEXT, answers)
    second = answers[TEXT]["sentences"][1]
    sources, targets = second["source"].split(), second["translation"].split()
    source, target = second["alignment"][0]
    word = "[data-sentence='1'] [data-word='{}']"
    from_target = [sources[s] for s, t in second["alignment"] if t == target]
    from_source = [targets[t] for s, t in second["alignment"] if s == source]

    def shown(on: str, partners: Sequence[str]) -> None:
        assert content(page, ".on") == [on]
        assert content(page, ".partner") == partners

    page.point("#target " + word.format(target), 0.5, 0.5)
    shown(targets[target], from_target)
    probability = round(second["word_confidence"][target] * 100)
    assert content(page, "#readout b") == [f"{probability} %"]
    # The source is a text area, whose words cannot be elements: its mirror lies behind them.
    page.point("#mirror " + word.format(source), 0.5, 0.5)
    shown(sources[source], from_source)


def test_the_keyboard_alone_is_enough(page: Page, url: str, answers: dict[str, Any]) -> None:
    visit(page, url)
    translated(page, TEXT, answers)
    first, second = answers[TEXT]["sentences"]
    tab_to(page, "#target")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert content(page, ".on") == [first["translation"].split()[1]]
    tab_to(page, "#alternatives button")
    page.press("Enter")
    taken = first["alternatives"][0]
    wait_for(page, "#target", f"{taken}\n\n {second['translation']}")
    page.press("Enter")
    wait_for(page, "#target", answers[TEXT]["translatedText"])
    tab_to(page, "#look")
    page.press("Enter")
    page.wait("document.querySelector('#map canvas') !== null")
    tab_to(page, ".map")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.press(key)
    values = {"q": first["source"], **DETAILS, "attention": True}
    map_ = ask(f"{url}/translate", values)[1]["sentences"][0]["attention"]
    assert content(page, "#map .queries span") == map_["tokens"]
    assert content(page, "#map .keys span") == map_["source_tokens"]
    [weight] = content(page, "#weight")
    assert weight.endswith(f"{map_['weights'][1][1]:.3f}")
    page.press("Escape")
    assert content(page, "#drawer") == []
