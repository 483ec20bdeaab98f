"""Files, markup and placeholders over loopback, for clients of LibreTranslate and of DeepL."""

import hashlib
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deepl
import pytest
import requests

from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.serving.office import docx, odt, unzipped
from tests.helpers.serving.served import ask, serving
from transformer.common.errors import InputError
from transformer.serving.access import Client
from transformer.serving.batch_translation import Options, Sentence, SentenceTranslation
from transformer.serving.interfaces import files

CLIENTS = [Client(name, hashlib.sha256(name.encode()).hexdigest()) for name in ("anna", "bob")]
LANGUAGES = {"source": "en", "target": "de"}


def backwards(options: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
    """A model that turns the order of the words, and knows where each went."""
    found = []
    for sentence in sentences:
        if "poison" in sentence.text:
            raise InputError("poison cannot be translated")
        if "slow" in sentence.text:
            time.sleep(0.5)
        words = sentence.text.split()
        links = tuple((len(words) - 1 - n, n) for n in range(len(words)))
        found.append(SentenceTranslation(sentence.text, " ".join(words[::-1]), links=links))
    return found


def word(*words: str, header: str = "") -> bytes:
    """A document of Word with one paragraph; the text after a star is bold."""
    runs = "".join(
        f"<w:r>{'<w:rPr><w:b/></w:rPr>' * text.startswith('*')}"
        f'<w:t xml:space="preserve">{text.removeprefix("*")}</w:t></w:r>'
        for text in words
    )
    header = f'<w:p><w:r><w:t xml:space="preserve">{header}</w:t></w:r></w:p>'
    return docx(f"<w:p>{runs}</w:p>", header)


FILES = {
    "two.txt": (b"a dog runs\r\n\r\n1 2\r\n\ta cat\r\n", b"runs dog a\r\n\r\n1 2\r\n\tcat a\r\n"),
    "page.HTML": (
        b"<p class=a>a <b>dog</b> runs &amp;</p>",
        b"<p class=a>&amp; runs <b>dog</b> a</p>",
    ),
    "film.srt": (
        b"1\n0:00:01,000 --> 0:00:02,000\na <i>big dog</i>\nruns there\n",
        b"1\n0:00:01,000 --> 0:00:02,000\nthere runs\n<i>dog big</i> a\n",
    ),
    "deep.srt": (
        b"0:00:01,000 --> 0:00:02,000\na %sdog%s runs\n" % (b"<i>" * 2000, b"</i>" * 2000),
        b"0:00:01,000 --> 0:00:02,000\nruns %sdog%s a\n" % (b"<i>" * 2000, b"</i>" * 2000),
    ),
    "letter.docx": (
        word("a ", "*dog", " runs", header="head is"),
        word("runs ", "*dog", " a", header="is head"),
    ),
    "letter.odt": (
        odt("<text:p>a <text:a>dog</text:a> runs</text:p>"),
        odt("<text:p>runs <text:a>dog</text:a> a</text:p>"),
    ),
}


def same(data: bytes, expected: bytes) -> bool:
    return data == expected or unzipped(data) == unzipped(expected)


def upload(
    url: str, name: str, data: bytes, headers: Mapping[str, str] | None = None, **fields: str
) -> Any:
    """The answer to a file for LibreTranslate."""
    file = {"file": (name, data)}
    values = LANGUAGES | fields
    return requests.post(f"{url}/translate_file", values, files=file, headers=headers, timeout=60)


@pytest.mark.thorough
def test_libretranslate_translates_files() -> None:
    with serving(translate=backwards, file_bytes=20_000, body_bytes=2000) as url:
        settings = ask(f"{url}/frontend/settings")[1]
        assert settings["filesTranslation"] and ".odt" in settings["supportedFilesFormat"]
        for name, (data, expected) in FILES.items():
            answer = upload(url, f"../../etc/{name}", data, source="auto")
            where = answer.json()["translatedFileUrl"]
            found = requests.get(where, timeout=60)
            assert same(found.content, expected), (name, found.content)
            stem, _, extension = name.partition(".")
            secret, _, shown = where.removeprefix(f"{url}/download_file/").partition(".")
            assert (len(secret), shown) == (32, f"{stem}_de.{extension}")
            assert found.headers["Content-Disposition"].endswith(f"''{shown}")
            guesses = (secret, f"{secret}.x{shown}", f"..%2f{secret}.{shown}", "..%2f..%2fetc", "")
            for wrong in guesses:
                status, answer = ask(f"{url}/download_file/{wrong}")
                assert (status, answer) == (400, {"error": "Invalid filename"})
        for name, data, fields, status, error in (
            ("a.pdf", b"a", {}, 400, "Invalid request: file format not supported"),
            ("a.txt", b"a", {"source": ""}, 400, "Invalid request: missing source parameter"),
            ("a.txt", b"a", {"target": "xx"}, 400, "xx is not supported"),
            ("a.docx", FILES["letter.odt"][0], {}, 400, "the file is no .docx document"),
            ("a.txt", b"poison", {}, 400, "poison cannot be translated"),
            ("a.txt", b"a" * 30_000, {}, 413, "The body exceeds 22000 bytes"),
        ):
            answer = upload(url, name, data, **fields)
            assert answer.status_code == status and answer.json()["error"].startswith(error)
        proxy = {"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/translator"}
        where = upload(url, "a.txt", b"a", proxy).json()["translatedFileUrl"]
        assert where.startswith(f"https{url.removeprefix('http')}/translator/download_file/")
        status, answer = ask(f"{url}/translate_file", LANGUAGES)
        assert (status, answer["error"]) == (400, "Invalid request: missing file parameter")
    with serving(translate=backwards, requests=3) as url:
        # A file without a text counts, too.
        assert [upload(url, "a.txt", b"7").status_code for _ in "abcd"] == [200, 200, 200, 429]
    with serving(translate=backwards, requests=3) as url:
        # Each paragraph counts, and a file may have more than a minute's worth.
        assert [upload(url, "a.txt", b"a\nb\nc\nd\ne").status_code for _ in "ab"] == [200, 429]
    with serving(translate=backwards, file_bytes=None) as url:
        assert upload(url, "a.txt", b"a").status_code == 403
        assert not ask(f"{url}/frontend/settings")[1]["filesTranslation"]


def test_the_client_of_deepl_translates_documents(tmp_path: Path) -> None:
    pairs = [("en", "de"), ("en", "fr")]
    with serving(translate=backwards, clients=CLIENTS, pairs=pairs) as url:
        anna, bob = (deepl.DeepLClient(client.name, server_url=url) for client in CLIENTS)
        for name, (data, expected) in FILES.items():
            (tmp_path / name).write_bytes(data)
            (tmp_path / "out").unlink(missing_ok=True)
            status = anna.translate_document_from_filepath(
                tmp_path / name, tmp_path / "out", target_lang="DE"
            )
            assert same((tmp_path / "out").read_bytes(), expected) and status.billed_characters
        counted = anna.get_usage().character
        assert counted is not None and counted.count is not None and counted.count > 50
        handle = anna.translate_document_upload(b"a slow dog", filename="a.txt", target_lang="DE")
        header = {"Authorization": "DeepL-Auth-Key anna"}
        result = f"{url}/v2/document/{handle.document_id}/result"
        assert ask(result, {"document_key": handle.document_key}, **header)[0] == 503
        wrong = deepl.DocumentHandle(handle.document_id, "0" * 64)
        for client, given in ((bob, handle), (anna, wrong)):
            with pytest.raises(deepl.DeepLException, match="Document not found"):
                client.translate_document_get_status(given)
        assert anna.translate_document_wait_until_done(handle, 60).done
        handle = anna.translate_document_upload(b"a poison", filename="a.txt", target_lang="DE")
        status = anna.translate_document_wait_until_done(handle, 60)
        assert not status.ok and status.error_message == "poison cannot be translated"
        made = anna.create_glossary("animals", "EN", "FR", {"dog": "hund"})
        for asked, error in (
            ({"output_format": "pdf"}, "output_format must be"),
            ({"source_lang": "EN", "glossary": made.glossary_id}, "glossary is of other languages"),
            ({"source_lang": "XX"}, "'source_lang' not supported"),
        ):
            with pytest.raises(deepl.DeepLException, match=error):
                anna.translate_document_upload(b"a", filename="a.txt", target_lang="DE", **asked)


def test_files_are_deleted_in_time_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving(translate=backwards, file_seconds=1.5) as url:
        assert ask(f"{url}/health")[0] == 200
        [folder] = tmp_path.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        where = upload(url, "secret.txt", b"a dog").json()["translatedFileUrl"]
        assert requests.get(where, timeout=60).content == b"dog a"
        [stored] = folder.iterdir()
        assert "secret" not in stored.name
        deadline = time.monotonic() + 20
        while requests.get(where, timeout=60).status_code == 200:
            assert time.monotonic() < deadline
        assert not list(folder.iterdir())
        # The oldest make room.
        with monkeypatch.context() as patch:
            patch.setattr(files, "MAX_FILES", 2)
            for _ in "abc":
                assert upload(url, "a.txt", b"a").status_code == 200
            assert len(list(folder.iterdir())) <= 2
    with serving(translate=backwards) as url:
        upload(url, "a.txt", b"a dog")

        # Nobody waits for a document that is being translated.
        def send(number: int) -> bool:
            file = {"file": ("a.txt", f"a slow dog {number}")}
            answer = requests.post(
                f"{url}/v2/document", {"target_lang": "DE"}, files=file, timeout=60
            )
            assert answer.status_code in (200, 429)
            return answer.ok

        with ThreadPoolExecutor(50) as pool:
            # 20 wait at most; some may be finished meanwhile.
            assert 20 <= sum(pool.map(send, range(50))) < 35
        start = time.monotonic()
    assert time.monotonic() - start < 3
    assert not list(tmp_path.iterdir())


SNIPPETS = (Path(__file__).parents[2] / "helpers" / "serving" / "snippets.html").read_text("utf-8")
TAGS = re.compile(r"<[^<>]*>")
ASKED = {"source": "en", "target": "de", "format": "html"}
BOLD = "<p>a <b>dog <i>runs</i></b> {name}</p>"


def sorted_tags(text: str) -> list[str]:
    return sorted(TAGS.findall(text))


@pytest.fixture(scope="module")
def markup_url() -> Iterator[str]:
    with serving(translator=tiny_translator(beam_size=1, max_length_offset=4)) as address:
        yield address


@pytest.mark.thorough
def test_snippets_of_pages_keep_every_tag(markup_url: str) -> None:
    sources = SNIPPETS.split("\n%%\n")
    assert len(sources) == 50
    status, answer = ask(f"{markup_url}/translate", ASKED | {"q": sources})
    assert status == 200
    kept = re.compile(r"<(script|style|svg|code|kbd|pre|textarea)\b.*?</\1>", re.DOTALL)
    for source, found in zip(sources, answer["translatedText"], strict=True):
        assert found != source and sorted_tags(found) == sorted_tags(source)
        for match in kept.finditer(source):
            assert found.count(match[0]) == source.count(match[0])


def test_markup_over_both_interfaces(markup_url: str) -> None:
    more = ASKED | {"q": BOLD, "source": "auto", "alternatives": 2}
    status, answer = ask(f"{markup_url}/translate", more)
    assert (status, answer["alternatives"]) == (200, [])
    assert answer["detectedLanguage"]["language"] == "en"
    assert sorted_tags(answer["translatedText"]) == sorted_tags(BOLD)
    for wrong in ({"alignment": True}, {"confidence": True}, {"stream": True}):
        status, answer = ask(f"{markup_url}/translate", more | wrong)
        assert status == 400 and "take format=text" in answer["error"]
    # A sentence that is too long for links.
    long = f"<p>{'a dog ' * 300}<b>runs</b> .</p>"
    status, answer = ask(f"{markup_url}/translate", ASKED | {"q": long})
    assert status == 200 and sorted_tags(answer["translatedText"]) == sorted_tags(long)
    client = deepl.DeepLClient("any-key", server_url=markup_url)
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
        assert ask(f"{markup_url}/v2/translate", asked) == (400, {"message": says})


def test_placeholders_come_through(markup_url: str) -> None:
    held = ["{name}", "%s", "https://example.org/a?b=c", "anna@example.org"]
    text = f"a dog {held[0]} runs {held[1]} . two cats: {held[2]}, or {held[3]} sleep ."
    html = ask(f"{markup_url}/translate", ASKED | {"q": text})[1]["translatedText"]
    more = ASKED | {"q": text, "format": "text", "alignment": True, "confidence": True}
    status, answer = ask(f"{markup_url}/translate", more)
    assert status == 200
    for one in answer["sentences"]:
        words = one["translation"].split()
        assert len(one["word_confidence"]) == len(words)
        links = {(one["source"].split()[s], words[t]) for s, t in one["alignment"]}
        for name in held:
            assert any(name in s and name in t for s, t in links) == (name in one["source"])
    for each in (html, answer["translatedText"]):
        assert [each.count(name) for name in held] == [1] * len(held)
