"""Documents: what is translated changes, all else stays, and strangers' files do no harm."""

import io
import zipfile
from collections.abc import Callable
from time import process_time

import pytest

from tests.helpers.serving.office import W, changed, docx, odt, unzipped, zipped
from transformer.common.errors import InputError
from transformer.serving.formats.documents import FORMATS

MOST = 100_000

Change = Callable[[str], str]


def run(text: str, properties: str = "") -> str:
    properties = properties and f"<w:rPr>{properties}</w:rPr>"
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


FIELD = "".join(
    f"<w:r>{part}</w:r>"
    for part in (
        '<w:fldChar w:fldCharType="begin"/>',
        "<w:instrText>PAGE</w:instrText>",
        '<w:fldChar w:fldCharType="separate"/>',
        "<w:t>seven</w:t>",
        '<w:fldChar w:fldCharType="end"/>',
    )
)
DELETED = '<w:del w:id="9"><w:r><w:delText>gone</w:delText></w:r></w:del>'


def word(change: Change) -> bytes:
    """Tables, links, breaks, a text box, a field and a header."""
    box = f"<w:r><w:pict><v:textbox><w:p>{run(change('In a box'))}</w:p></v:textbox></w:pict></w:r>"
    link = "<w:u/>"
    body = (
        '<w:p><w:pPr><w:jc w:val="left"/></w:pPr><w:bookmarkStart w:id="0"/>'
        f"{run(change('The '))}{run(change('dog'), '<w:b/>')}{run(change(' sleeps.'))}"
        f'<w:bookmarkEnd w:id="0"/>{FIELD}</w:p>'
        f"<w:p>{run(change('One'))}<w:r><w:br/></w:r>{run(change('two'))}{box}"
        f'<w:hyperlink w:anchor="a">{run(change("link"), link)}</w:hyperlink>{DELETED}</w:p>'
        f"<w:tbl><w:tr><w:tc><w:p>{run(change('Cell'))}</w:p></w:tc></w:tr></w:tbl>"
        f"<w:p>{run('12')}<w:sectPr/></w:p>"
    )
    return docx(body, f"<w:p>{run(change('Head'))}</w:p>")


def open_document(change: Change) -> bytes:
    """Headings, spans, links, breaks, a note, a list and a header."""
    note = (
        f"<text:note><text:note-body><text:p>{change('Note')}</text:p></text:note-body></text:note>"
    )
    body = (
        "<office:body><office:text>"
        f"<text:h>{change('Big ')}<text:span text:style-name='T1'>{change('title')}</text:span>"
        "</text:h>"
        f"<text:p><text:s text:c='4'/>{change('The dog')}{note}{change(' sleeps.')}<text:tab/>"
        f"{change('Then')}<text:line-break/><text:a>{change('link')}</text:a></text:p>"
        f"<text:list><text:list-item><text:p>{change('Item')}</text:p></text:list-item></text:list>"
        "</office:text></office:body>"
    )
    return odt(body, f"<style:header><text:p>{change('Head')}</text:p></style:header>")


def strict(change: Change) -> bytes:
    """The document of Word in its strict form, whose elements are in another namespace."""
    strict = b"http://purl.oclc.org/ooxml/wordprocessingml/main"
    entries = unzipped(word(change))
    return zipped({name: data.replace(W.encode(), strict) for name, data in entries.items()})


@pytest.mark.parametrize(
    ("extension", "build"), [(".docx", word), (".docx", strict), (".odt", open_document)]
)
def test_only_the_text_of_a_document_changes(
    extension: str, build: Callable[[Change], bytes]
) -> None:
    for change in (str, str.upper):
        document = FORMATS[extension](build(str), MOST)
        written = document.write([changed(text, change) for text in document.texts])
        assert unzipped(written) == unzipped(build(change))
        assert zipfile.ZipFile(io.BytesIO(written)).namelist() == list(unzipped(build(str)))


def test_formatting_goes_along_with_its_words() -> None:
    bold, italic = "<w:b/>", "<w:i/>"
    pieces = [
        run("The "),
        run("old ", '<w:lang w:val="en"/>'),
        '<w:proofErr w:type="spellStart"/>',
        run("big ", bold),
        "<w:r><w:tab/></w:r>",
        run("d", bold),
        run("og", bold),
        run(" and"),
        "<w:r><w:pict/></w:r>",
        run(" cat", italic),
    ]
    document = FORMATS[".docx"](docx(f"<w:p>{''.join(pieces)}</w:p>"), MOST)
    assert [["".join(s.text for s in text), len(text)] for text in document.texts] == [
        ["The old big ", 3],
        ["dog and cat", 5],
    ]
    first, second = document.texts
    written = document.write([first[::-1], second[::-1]])
    expected = [
        run("big ", bold),
        run("old The "),
        "<w:r><w:tab/></w:r>",
        run(" cat", italic),
        "<w:r><w:pict/></w:r>",
        run(" and"),
        run("ogd", bold),
    ]
    assert unzipped(written) == unzipped(docx(f"<w:p>{''.join(expected)}</w:p>"))
    # Text that its mark has lost gets the formatting of most of the paragraph; what is no XML goes.
    document = FORMATS[".docx"](docx(f"<w:p>{run('a long text', bold)}{run(' b')}</w:p>"), MOST)
    [text] = document.texts
    written = document.write([(type(text[0])("x\x00y"),)])
    assert unzipped(written) == unzipped(docx(f"<w:p>{run('xy', bold)}</w:p>"))


CUES = """\ufeff1\r
00:00:01,000 --> 00:00:02,500 X1:1\r
The <i>old dog\r
sleeps</i> very well.\r
\r
2\r
00:00:03.000 --> 00:00:04.000\r
- Yes?\r
- {\\an8}No <b>way!\r
\r
"""
SHOUTED = (
    CUES.replace("The", "THE")
    .replace("old dog\r\nsleeps", "OLD DOG\r\nSLEEPS")
    .replace("very well", "VERY WELL")
    .replace("Yes", "YES")
    .replace("No <b>way", "NO <b>WAY")
)
LINES = "\ufeffOne. Two.\r\n\r\n 7\n\tLast"


@pytest.mark.parametrize(
    ("extension", "text", "texts", "shouted"),
    [
        (".txt", LINES, ["One. Two.", "Last"], LINES.upper()),
        (".srt", CUES, ["The old dog sleeps very well.", "Yes?", "No way!"], SHOUTED),
    ],
)
def test_lines_and_cues_stay(extension: str, text: str, texts: list[str], shouted: str) -> None:
    document = FORMATS[extension](text.encode(), MOST)
    assert ["".join(span.text for span in spans) for spans in document.texts] == texts
    assert document.write(document.texts) == text.encode()
    written = document.write([changed(spans, str.upper) for spans in document.texts])
    assert written.decode() == shouted


LAUGHS = (
    "<!DOCTYPE x [<!ENTITY a '"
    + "ha" * 50
    + "'>"
    + "".join(
        f"<!ENTITY {name} '{f'&{before};' * 50}'>"
        for before, name in zip("abcdef", "bcdefg", strict=True)
    )
    + f"]><w:document xmlns:w='{W}'><w:p><w:r><w:t>&g;</w:t></w:r></w:p></w:document>"
)


def with_document(data: str | bytes) -> bytes:
    """A document of Word whose main part is something else."""
    entries: dict[str, str | bytes] = dict(unzipped(docx("")))
    return zipped(entries | {"word/document.xml": data})


BAD: list[tuple[str, bytes, str]] = [
    (".txt", b"caf\xe9", "not UTF-8 .*position 3.*; convert it"),
    (".docx", with_document(LAUGHS), "no .docx document"),
    (".docx", with_document("<!DOCTYPE w SYSTEM 'file:///etc/passwd'><w/>"), "it has a DTD"),
    (".docx", with_document(b" " * (MOST + 1)), "it becomes more than 100000 bytes"),
    (".docx", zipped({"bomb": b"\0" * (10 * MOST + 1)}), "it becomes more than 1000000 bytes"),
    (".docx", docx(f'<w:p xmlns:a="b"><w:r a:c="d">{run("a")}</w:r></w:p>'), "no .docx document"),
    (
        ".odt",
        odt(f"<text:p><text:span a='{'a' * 9999}'>{'a<text:s/>' * 999}</text:span></text:p>"),
        "it becomes more than 100000 bytes",
    ),
    (".odt", zipped({"mimetype": "text/plain", "content.xml": "<a/>"}), "it has no text, or too"),
]


def test_bad_files_are_refused_in_one_line_and_fast() -> None:
    start = process_time()
    for extension, data, message in BAD:
        with pytest.raises(InputError, match=message) as raised:
            FORMATS[extension](data, MOST)
        assert "\n" not in str(raised.value)
    assert process_time() - start < 5
