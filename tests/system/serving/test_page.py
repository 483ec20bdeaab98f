"""The page of the server in a real browser: what it shows, by pointer and by keyboard."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from tests.helpers.serving.browser import BINARY, Page, browser
from tests.helpers.serving.served import ask, serving
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.serving import batch_translation, languages

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
        # The probabilities of a model that was not trained are all alike.
        patch.setattr(
            batch_translation, "_mean_probability", lambda logs: 0.3 + len(logs) % 2 * 0.4
        )
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
    return {
        text: ask(f"{url}/translate", {"q": text, **DETAILS})[1]
        for text in (TEXT, OTHER, PAIRS[3][0])
    }


def visit(page: Page, url: str, width: int = 1200, *, dark: bool = False) -> None:
    page.events.clear()
    page.resize(width, 900, dark=dark)
    page.open(url)
    page.wait("document.documentElement.dataset.ready === 'true'")


def write(page: Page, text: str) -> None:
    page.evaluate("document.getElementById('source').select()")
    page.write(text)


def content(page: Page, selector: str) -> list[str]:
    chosen = f"[...document.querySelectorAll({json.dumps(selector)})]"
    found: list[str] = page.evaluate(
        f"{chosen}.filter(one => one.checkVisibility()).map(one => one.textContent)"
    )
    return found


def wait_for(page: Page, selector: str, text: str) -> None:
    page.wait(f"document.querySelector({json.dumps(selector)}).textContent === {json.dumps(text)}")


def translated(page: Page, text: str, answers: dict[str, Any]) -> None:
    write(page, text)
    wait_for(page, "#target", answers[text]["translatedText"])


def tab_to(page: Page, selector: str) -> None:
    for _ in range(12):
        page.press("Tab")
        if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"Tab does not reach {selector}")


def test_typing_translates_and_markup_is_text(
    page: Page, url: str, answers: dict[str, Any]
) -> None:
    visit(page, url)
    assert page.evaluate("document.activeElement.id") == "source"
    translated(page, TEXT, answers)
    assert content(page, "#count") == [f"{len(TEXT)} / 500"]
    assert content(page, "#message, #key") == []
    assert page.evaluate("from.options[0].textContent").endswith(" (detected)")
    probabilities = [p for one in answers[TEXT]["sentences"] for p in one["word_confidence"]]
    words = zip(answers[TEXT]["translatedText"].split(), probabilities, strict=True)
    assert content(page, "#target .unsure") == [word for word, p in words if p < 0.5]
    write(page, "a" * 501)
    wait_for(page, "#message span", "The text is too long by 1 characters.")
    # The translation beside it is of another text.
    assert page.evaluate("[result.className, copy.disabled]") == ["panel stale", True]
    page.evaluate("from.value = 'en'; from.dispatchEvent(new Event('change'))")
    translated(page, OTHER, answers)
    assert content(page, "#message") == []
    assert page.evaluate("[result.className, copy.disabled]") == ["panel", False]
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
    assert page.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0


def test_nothing_is_asked_of_another_server(page: Page, url: str, answers: dict[str, Any]) -> None:
    visit(page, url)
    translated(page, TEXT, answers)
    asked = [e["params"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    addresses = {one["request"]["url"] for one in asked}
    assert f"{url}/page/attention_map.js" in addresses
    assert f"{url}/translate" in addresses
    assert [a for a in addresses if not a.startswith((f"{url}/", "about:", "data:image"))] == []
    wrong = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    assert [event["params"] for event in page.events if event["method"] in wrong] == []
    # A script that a text had smuggled in would be refused.
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { text: 'ran = 1' }))"
    )
    assert page.evaluate("window.ran") is None


# A server that wants a key, translates from one language, and believes that it is elsewhere.
KEY_AND_FILE = """{ const real = window.fetch; window.sent = [];
    window.fetch = async (path, options) => {
        if (path === 'translate') window.sent.push(JSON.parse(options.body).api_key);
        if (path === 'translate_file') window.sent.push([...options.body.keys()].join());
        const answer = await real(path, options);
        if (!['frontend/settings', 'languages', 'translate_file'].includes(path) || !answer.ok)
            return answer;
        const values = await answer.json();
        if (path === 'languages')
            return new Response(JSON.stringify(values.map((one) =>
                one.code === 'en' ? one : { ...one, targets: [] })));
        if (values.translatedFileUrl) values.translatedFileUrl =
            values.translatedFileUrl.replace(location.origin, 'http://other/x');
        return new Response(JSON.stringify({ ...values, keyRequired: true })); }; }"""


def test_a_key_and_a_file(page: Page, url: str, answers: dict[str, Any], tmp_path: Path) -> None:
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source=KEY_AND_FILE)
    visit(page, url)
    page.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    assert page.evaluate("[from.value, from.length, from.disabled]") == ["en", 1, True]
    write(page, TEXT)
    wait_for(page, "#message span", "This server needs an API key: enter it above.")
    page.evaluate("key.focus()")
    page.write("secret")
    page.press("Tab")
    wait_for(page, "#target", answers[TEXT]["translatedText"])
    assert content(page, "#message") == []
    node = page.call("Runtime.evaluate", expression="document.getElementById('file')")

    def choose_file(name: str) -> None:
        (tmp_path / name).write_text("a dog")
        found = [str(tmp_path / name)]
        page.call("DOM.setFileInputFiles", files=found, objectId=node["result"]["objectId"])

    page.evaluate("source.focus()")
    choose_file("b.txt")
    page.wait("document.querySelector('#file-line a') !== null")
    assert content(page, "#file-line") == ["b.txt is translated. Download the translation"]
    address = page.evaluate("document.querySelector('#file-line a').href")
    assert address.startswith(f"{url}/download_file/")
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.read() == b"a dog"
    assert page.evaluate("window.sent") == ["secret", "file,source,target,api_key"]
    assert page.evaluate("location.href") == f"{url}/"
    assert page.evaluate("document.activeElement.id") == "source"
    choose_file("b.xyz")
    page.wait("document.querySelector('#file-line.wrong') !== null")
    assert content(page, "#file-line")[0].startswith("b.xyz was not translated: file format")
    write(page, OTHER)
    assert content(page, "#file-line") == []
    page.evaluate("sessionStorage.clear()")


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
    page.point("h1", 0.5, 0.5)
    assert content(page, ".on, .partner") == []
    start = TEXT.index(second["source"]) + len(" ".join(["", *sources[:source], ""])) - 1
    page.evaluate(f"source.focus(); source.setSelectionRange({start}, {start})")
    page.wait("document.querySelector('.on') !== null")
    shown(sources[source], from_source)
    assert content(page, "#alternatives-title") == ["Alternatives for sentence 2 of 2"]


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
    # What it replaced can be taken again.
    assert content(page, "#alternatives button")[0] == first["translation"]
    assert page.evaluate("document.activeElement.matches('#alternatives button')")
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
    assert all(sum(row) <= 1.01 for row in map_["weights"])
    told = f"translation {map_['tokens'][1]} → source {map_['source_tokens'][1]}"
    assert content(page, "#weight") == [f"{told}  {map_['weights'][1][1]:.3f}"]
    page.press("Escape")
    assert content(page, "#drawer") == []
    assert page.evaluate("document.activeElement.id") == "look"


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (1200, True)])
def test_the_page_fits_and_changes_its_colors(
    page: Page, url: str, answers: dict[str, Any], width: int, dark: bool
) -> None:
    visit(page, url, width, dark=dark)
    translated(page, TEXT, answers)
    page.point("#look", 0.5, 0.5, click=True)
    page.wait("document.querySelector('#map canvas') !== null")
    write(page, "a" * 200)
    page.wait("target.textContent !== '' && result.ariaBusy === 'false'")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    left, right = page.evaluate("(b => [b.left, b.right])(to.getBoundingClientRect())")
    assert right < page.evaluate("card.getBoundingClientRect().right")
    assert right - left >= 80
    # The mirror breaks lines where the text area does: both are equally high.
    assert page.evaluate("source.scrollHeight <= mirror.scrollHeight")
    color = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(color)
    page.point("#theme", 0.5, 0.5, click=True)
    assert page.evaluate(color) != before
    assert page.evaluate("theme.ariaPressed") == str(not dark).lower()
    page.evaluate("localStorage.clear()")


STUB = """{ const real = window.fetch; let calls = 0; window.done = 0;
    window.fetch = async (path, options) => path === 'translate'
        ? (%s)(calls++, () => real(path, { ...options, signal: undefined }),
            (status, after) => new Response(
            '{"error": "no"}', { status, headers: { 'Retry-After': after } }))
        : real(path, options); }"""
# The first answer comes last, although nobody waits for it any more.
SLOW = """async (call, ask) => { const text = await (await ask()).text();
    if (call === 0) await new Promise((resolve) => setTimeout(resolve, 800));
    setTimeout(() => { window.done++; }, 50); return new Response(text); }"""

EMPTY = (
    r"""() => new Response('data: {"translatedText": "", "sentences": []}\n\ndata: [DONE]\n\n')"""
)
TYPED = "source.value += 'a '; source.dispatchEvent(new Event('input'));"


def test_the_last_answer_wins_and_errors_pass(
    page: Page, url: str, answers: dict[str, Any]
) -> None:
    visit(page, url)
    page.evaluate(STUB % SLOW)
    write(page, TEXT)
    page.wait("result.ariaBusy === 'true'")
    translated(page, OTHER, answers)
    page.wait("window.done === 2")
    wait_for(page, "#target", answers[OTHER]["translatedText"])
    # Who types without a pause sees something, too; here, that there is nothing.
    page.evaluate(STUB % EMPTY)
    page.evaluate(f"typing = setInterval(() => {{ {TYPED} }}, 100)")
    page.wait("target.dataset.empty === 'The model gave no translation.'")
    page.evaluate("clearInterval(typing)")
    assert content(page, "#copy") == []

    for failing, message in (
        (
            "(call, ask, no) => call ? ask() : no(429, 0)",
            "The server is busy. Trying again in 1 s.",
        ),
        (
            "(call, ask) => { if (call) return ask(); throw new TypeError(); }",
            "The server cannot be reached. Trying again in 1 s.",
        ),
        ("(call, ask, no) => call ? ask() : no(504, 0)", "The translation took too long."),
    ):
        visit(page, url)
        page.evaluate(STUB % failing)
        write(page, TEXT)
        wait_for(page, "#message span", message)
        if content(page, "#again"):
            page.point("#again", 0.5, 0.5, click=True)
        page.evaluate("dispatchEvent(new Event('online'))")
        wait_for(page, "#target", answers[TEXT]["translatedText"])
        assert content(page, "#message") == []
