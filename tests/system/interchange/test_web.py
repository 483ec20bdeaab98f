"""The folder of ``format=web`` in a real browser: it translates as the model does."""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.checks import no_checks
from tests.helpers.decoding.translators import PAIRS, wordy_translator
from tests.helpers.serving.browser import BINARY, Page, browser
from transformer.decoding.translator import Translator
from transformer.interchange.web_page import find_runtime, write_web
from transformer.settings.data import DataConfig

NPM = Path(".cache/npm/node_modules/onnxruntime-web")

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="needs chromium, headless"),
    pytest.mark.skipif(
        not NPM.is_dir(), reason="needs node, and onnxruntime-web of npm as .ci/run installs it"
    ),
    pytest.mark.thorough,
]

WORDS = " ".join(source for source, _ in PAIRS).split()
TEXTS = [" ".join(WORDS[start::step]) for step in (2, 3, 5, 7) for start in range(5)]
HOSTILE = "<script>ran = 1</script> <img src=x onerror='ran = 1'> a dog"
OUTPUT = "[...document.querySelectorAll('#output .target')].map(line => line.textContent)"


@pytest.fixture(scope="module")
def translator() -> Translator:
    return wordy_translator(encoder_layers=1, decoder_layers=1)


@pytest.fixture(scope="module")
def folder(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web")
    runtime = find_runtime(NPM, Path(".cache"))
    with no_checks():
        write_web(translator, DataConfig(source="en", target="de"), folder, "float32", runtime)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with browser(tmp_path_factory.mktemp("profile")) as page:
        page.open(f"http://127.0.0.1:{server.server_port}/index.html")
        page.wait("document.getElementById('status').textContent !== ''", 60)
        page.wait("!document.getElementById('translate').disabled", 120)
        yield page
    server.shutdown()


def translate(page: Page, text: str) -> list[str]:
    page.evaluate(
        f"document.getElementById('text').value = {json.dumps(text)};"
        "document.getElementById('split').checked = false;"
        "document.getElementById('translate').click()"
    )
    page.wait("document.getElementById('status').textContent.includes('seconds')", 120)
    return list(page.evaluate(OUTPUT))


def test_twenty_sentences_are_translated_as_by_the_model(
    page: Page, folder: Path, translator: Translator
) -> None:
    found = translate(page, "\n".join(TEXTS))
    ours = [translation.text for translation in translator.translate(TEXTS)]
    assert [text.split() for text in found] == [text.split() for text in ours]
    assert len(set(ours)) > 1


def test_words_are_linked_and_markup_stays_text(page: Page) -> None:
    translate(page, HOSTILE)
    assert page.evaluate("typeof ran") == "undefined"
    assert page.evaluate("document.querySelector('#output img, #output script')") is None
    assert page.evaluate("document.querySelector('.source').textContent") == HOSTILE
    page.evaluate("document.querySelector('.target span').focus()")
    assert page.evaluate("document.querySelectorAll('.source .linked').length") > 0
