"""Files, markup and placeholders over loopback, for clients of LibreTranslate and of DeepL."""

import hashlib
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
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

CLIENTS = [Client(name, hashlib.sha256(name.encode()).hexdigest()) for name in ("anna", "bob")]
LANGUAGES = {"source": "en", "target": "de"}


def backwards(options: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
    """A model that turns the order of the words, and knows where each went."""
    translations = []
    for sentence in sentences:
        if "poison" in sentence.text:
            raise InputError("poison cannot be translated")
        if "slow" in sentence.text:
            time.sleep(0.5)
        words = sentence.text.split()
        links = tuple((len(words) - 1 - n, n) for n in range(len(words)))
        text = " ".join(words[::-1])
        translations.append(SentenceTranslation(sentence.text, text, links=links))
    return translations


def word(first: str, bold: str, last: str) -> bytes:
    """A document of Word with one paragraph."""
    text = '<w:t xml:space="preserve">'
    runs = f"<w:r>{text}{first}</w:t></w:r><w:r><w:rPr><w:b/></w:rPr>{text}{bold}</w:t></w:r>"
    return docx(f"<w:p>{runs}<w:r>{text}{last}</w:t></w:r></w:p>")


FILES = {
    "two.txt": (b"a dog runs\r\n\r\n1 2\r\n\ta cat\r\n", b"runs dog a\r\n\r\n1 2\r\n\tcat a\r\n"),
    "page.HTML": (b"<p class=a>a <b>dog</b></p>", b"<p class=a><b>dog</b> a</p>"),
    "letter.docx": (word("a ", "dog", " runs"), word("runs ", "dog", " a")),
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
        data, expected = FILES["letter.docx"]
        answer = upload(url, "../../etc/letter.docx", data, source="auto")
        where = answer.json()["translatedFileUrl"]
        stored = requests.get(where, timeout=60)
        assert unzipped(stored.content) == unzipped(expected)
        secret, _, shown = where.removeprefix(f"{url}/download_file/").partition(".")
        assert (len(secret), shown) == (32, "letter_de.docx")
        assert stored.headers["Content-Disposition"].endswith("''letter_de.docx")
        for wrong in (secret, f"{secret}.x{shown}", f"..%2f{secret}.{shown}", ""):
            status, answer = ask(f"{url}/download_file/{wrong}")
            assert (status, answer) == (400, {"error": "Invalid filename"})
        for name, data, fields, status, error in (
            ("a.pdf", b"a", {}, 400, "Invalid request: file format not supported"),
            ("a.txt", b"a", {"source": ""}, 400, "Invalid request: missing source parameter"),
            ("a.docx", odt(""), {}, 400, "the file is no .docx document"),
            ("a.txt", b"a" * 30_000, {}, 413, "The body exceeds 22000 bytes"),
        ):
            answer = upload(url, name, data, **fields)
            assert answer.status_code == status and answer.json()["error"].startswith(error)
        proxy = {"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/translator"}
        where = upload(url, "a.txt", b"a", proxy).json()["translatedFileUrl"]
        assert where.startswith(f"https{url.removeprefix('http')}/translator/download_file/")
    with serving(translate=backwards, requests=3) as url:
        # Each paragraph counts, and a file may have more than a minute's worth.
        assert [upload(url, "a.txt", b"a\nb\nc\nd\ne").status_code for _ in "ab"] == [200, 429]
    with serving(translate=backwards, requests=1) as url:
        # A file without a text counts, too.
        assert [upload(url, "a.txt", b"7").status_code for _ in "ab"] == [200, 429]
    with serving(translate=backwards, file_bytes=None) as url:
        assert upload(url, "a.txt", b"a").status_code == 403


def test_the_client_of_deepl_translates_documents(tmp_path: Path) -> None:
    pairs = [("en", "de"), ("en", "fr")]
    with serving(translate=backwards, clients=CLIENTS, pairs=pairs) as url:
        anna, bob = (deepl.DeepLClient(client.name, server_url=url) for client in CLIENTS)
        billed = 0
        for name, (data, expected) in FILES.items():
            (tmp_path / name).write_bytes(data)
            (tmp_path / "out").unlink(missing_ok=True)
            status = anna.translate_document_from_filepath(
                tmp_path / name, tmp_path / "out", target_lang="DE"
            )
            assert same((tmp_path / "out").read_bytes(), expected) and status.billed_characters
            billed += status.billed_characters
        usage = anna.get_usage().character
        assert usage is not None and usage.count == billed
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
        wrong_languages = {"source_lang": "EN", "glossary": made.glossary_id}
        with pytest.raises(deepl.DeepLException, match="glossary is of other languages"):
            anna.translate_document_upload(
                b"a", filename="a.txt", target_lang="DE", **wrong_languages
            )


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
    with serving(translate=backwards) as url:
        upload(url, "a.txt", b"a dog")
    assert not list(tmp_path.iterdir())


TAGS = re.compile(r"<[^<>]*>")
ASKED = {"source": "en", "target": "de", "format": "html"}
BOLD = "<p>a <b>dog <i>runs</i></b> {name}</p>"


def sorted_tags(text: str) -> list[str]:
    return sorted(TAGS.findall(text))


@pytest.fixture(scope="module")
def markup_url() -> Iterator[str]:
    with serving(translator=tiny_translator(beam_size=1, max_length_offset=4)) as address:
        yield address


def test_markup_over_both_interfaces(markup_url: str) -> None:
    more = ASKED | {"q": BOLD, "source": "auto", "alternatives": 2}
    status, answer = ask(f"{markup_url}/translate", more)
    assert (status, answer["alternatives"]) == (200, [])
    assert answer["detectedLanguage"]["language"] == "en"
    assert sorted_tags(answer["translatedText"]) == sorted_tags(BOLD)
    status, answer = ask(f"{markup_url}/translate", more | {"alignment": True})
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
    for wrong, message in (
        ({"tag_handling": "md"}, "tag_handling must be html or xml"),
        ({"tag_handling": "xml", "ignore_tags": many}, "ignore_tags may have 100 names, not 101"),
    ):
        asked = {"text": "a", "target_lang": "DE"} | wrong
        assert ask(f"{markup_url}/v2/translate", asked) == (400, {"message": message})
