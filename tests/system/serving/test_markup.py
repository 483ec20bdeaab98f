"""Markup and placeholders through a model, over the interfaces of LibreTranslate and DeepL."""

import re
from collections.abc import Iterator
from pathlib import Path

import deepl
import pytest
import requests

from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.serving.served import ask, serving

SNIPPETS = (Path(__file__).parents[2] / "helpers" / "serving" / "snippets.html").read_text("utf-8")
TAGS = re.compile(r"<[^<>]*>")
ASKED = {"source": "en", "target": "de", "format": "html"}
BOLD = "<p>a <b>dog <i>runs</i></b> {name}</p>"


def sorted_tags(text: str) -> list[str]:
    return sorted(TAGS.findall(text))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(translator=tiny_translator(beam_size=1, max_length_offset=4)) as address:
        yield address


@pytest.mark.thorough
def test_snippets_of_pages_keep_every_tag(url: str) -> None:
    sources = SNIPPETS.split("\n%%\n")
    assert len(sources) == 50
    status, answer = ask(f"{url}/translate", ASKED | {"q": sources})
    assert status == 200
    kept = re.compile(r"<(script|style|svg|code|kbd|pre|textarea)\b.*?</\1>", re.DOTALL)
    for source, found in zip(sources, answer["translatedText"], strict=True):
        assert found != source and sorted_tags(found) == sorted_tags(source)
        for match in kept.finditer(source):
            assert found.count(match[0]) == source.count(match[0])


def test_markup_over_both_interfaces(url: str) -> None:
    more = ASKED | {"q": BOLD, "source": "auto", "alternatives": 2}
    status, answer = ask(f"{url}/translate", more)
    assert (status, answer["alternatives"]) == (200, [])
    assert answer["detectedLanguage"]["language"] == "en"
    assert sorted_tags(answer["translatedText"]) == sorted_tags(BOLD)
    for wrong in ({"alignment": True}, {"confidence": True}, {"stream": True}):
        status, answer = ask(f"{url}/translate", more | wrong)
        assert status == 400 and "take format=text" in answer["error"]
    # A sentence that is too long for links.
    long = f"<p>{'a dog ' * 300}<b>runs</b> .</p>"
    status, answer = ask(f"{url}/translate", ASKED | {"q": long})
    assert status == 200 and sorted_tags(answer["translatedText"]) == sorted_tags(long)
    client = deepl.DeepLClient("any-key", server_url=url)
    glossary = client.create_glossary("animals", "EN", "DE", {"dog": "katze"})
    asked = {"source_lang": "EN", "target_lang": "DE", "tag_handling": "html"}
    found = client.translate_text(BOLD, glossary=glossary, **asked).text
    assert "katze" in TAGS.sub(" ", found) and sorted_tags(found) == sorted_tags(BOLD)
    found = client.translate_text(BOLD, ignore_tags=["i"], **asked).text
    assert "<i>runs</i>" in found
    xml = "<d><t>a dog</t><x>cats</x></d>"
    asked = {"source_lang": "EN", "target_lang": "DE", "tag_handling": "xml"}
    found = client.translate_text(xml, ignore_tags="x", **asked).text
    assert "<x>cats</x>" in found and sorted_tags(found) == sorted_tags(xml)
    many = ",".join(map(str, range(101)))
    for wrong, says in (
        ({"tag_handling": "md"}, "tag_handling must be html or xml"),
        ({"tag_handling": "xml", "ignore_tags": many}, "ignore_tags may have 100 names, not 101"),
    ):
        asked = {"text": "a", "target_lang": "DE"} | wrong
        assert ask(f"{url}/v2/translate", asked) == (400, {"message": says})


def test_placeholders_come_through_everywhere(url: str) -> None:
    held = ["{name}", "%s", "https://example.org/a?b=c", "anna@example.org"]
    text = f"a dog {held[0]} runs {held[1]} . two cats: {held[2]}, or {held[3]} sleep ."
    html = ask(f"{url}/translate", ASKED | {"q": text})[1]["translatedText"]
    more = ASKED | {"q": text, "format": "text", "alignment": True, "confidence": True}
    status, answer = ask(f"{url}/translate", more)
    assert status == 200
    for one in answer["sentences"]:
        words = one["translation"].split()
        assert len(one["word_confidence"]) == len(words)
        links = {(one["source"].split()[s], words[t]) for s, t in one["alignment"]}
        for name in held:
            assert any(name in s and name in t for s, t in links) == (name in one["source"])
    asked = {"text": [text], "source_lang": "EN", "target_lang": "DE"}
    deepl_text = ask(f"{url}/v2/translate", asked)[1]["translations"][0]["text"]
    streamed = ASKED | {"q": text, "format": "", "stream": 1}
    events = requests.post(f"{url}/translate", streamed, timeout=60).text
    for each in (html, deepl_text, answer["translatedText"], events):
        assert [each.count(name) for name in held] == [1] * len(held)
