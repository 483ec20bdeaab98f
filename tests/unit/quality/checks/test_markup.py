"""Markup is recognized whole or cut off, told apart from signs, and removed."""

import time
from collections.abc import Iterable

import pytest

from transformer.data.corpora.split import NumberedPair
from transformer.quality.checks.markup import (
    decode_entities,
    find_markup_fault,
    remove_tags,
    same_tags,
)

# Left of a text whose other side has the same markup.
WHOLE = {
    "a <b>heavy</b> word": "a heavy word",
    "one<br/>two<BR >three.<p>four": "one two three. four",
    "<para>A word.</para><para>Two.</para>": " A word.  Two. ",
    "<b>Note</b>The disk is full.": "Note The disk is full.",
    "the term <b>x2</b>Y": "the term x2Y",
    '<a title="a > b" href=http://a.org/>here</a>': "here",
    "<font color=red>red": "red",
    "a<!-- a <b>note</b> -->b": "a b",
    "Bed &amp; Breakfast, &#228;&#xE4; &ldquo;x&rdquo;": "Bed & Breakfast, ää “x”",
    # Which would part lines and fields.
    "one&#10;two&#xD;three&#9;four": "one two three four",
    "& quot ; it & # 39 ; s & quot ;": '" it \' s "',
    "&lt;b&gt;heavy&lt;/b&gt; word.&amp;lt;br&amp;gt;": "heavy word. ",
}
# Halves of tags are faults, and stay.
BROKEN = ['see <a href="x', "font color='red'>red", "/p>two", "one<br", "a <!-- note", "<![CDATA["]
# A fault of one side alone: on both sides it may be meant.
UNCLEAR = ["Surround it with <em> and </em>.", "press <b> to go back", "type <b>text</b> here"]
UNCLEAR += ["<b></b>", "insert <!--more--> here", "a blank is &nbsp; here", "the sign is &copy;"]
UNCLEAR += ["it gives <p>Hello</p> then", "H<sub>2</sub>O is H&lt;sub&gt;2&lt;/sub&gt;O"]
UNCLEAR += ["return <b>{name}</b>;", "&copy; gives the sign", "keys: <i>nsert, <u>ndo"]
# On both sides no fault: a text about markup.
ABOUT = ["HTML 3.2 with <font> tags", "das »<HTML>«-Element", "entity (such as “&amp;”)"]
ABOUT += ["initial text (e.g. <caption> ... </caption>)", "supports <b>, <i> or <u>"]
ABOUT += ["press <Enter> or <Del> and <b>wait</b>", "write &lt; instead of <", "B<p> or I<i>"]
ABOUT += ["the characters &lt; and &gt; are special", "example: <a href='x'>here</a>"]
ABOUT += ["set <debug>yes</debug> there", "&image; and &int; are macros"]
# No markup.
NONE = ["a < b and b > c & d; R&D, AT&T, Q & A; M&M's", "I <3 you, </3, -> and <-, <=, => and <>"]
NONE += ["#include <stdio.h>, write to <a@b.org> or <URL:https://b.org/c> or <www.b.org/>"]
NONE += ["List<String>, vector<T>, if a<b>c or x<y and y>z", "see page.cgi?a=1&size=2&lt=3;"]


def fault(source: str, target: str, *, both: bool) -> bool:
    return find_markup_fault(both, NumberedPair(1, source, target)) is not None


def repaired(text: str) -> str:
    """What is left of a text whose other side has the same markup."""
    texts = text, f"{text} "
    for step in (decode_entities, remove_tags):
        texts = step(*texts)
    return texts[0]


@pytest.mark.parametrize(
    ("texts", "alone", "on_both", "stays"),
    [
        (WHOLE, True, True, False),
        (BROKEN, True, True, True),
        (UNCLEAR, True, False, True),
        (NONE, False, False, True),
    ],
)
def test_markup_is_a_fault_on_one_side_or_on_both(
    texts: Iterable[str], alone: bool, on_both: bool, stays: bool
) -> None:
    for text in texts:
        assert fault("a word", text, both=False) is alone, text
        assert fault(text, f"{text} ", both=True) is on_both, text
        assert not fault("a word", text, both=True) and not fault(text, f"{text} ", both=False)
        plain = repaired(text)
        assert plain == (text if stays else WHOLE[text])
        assert stays or not fault("a word", plain, both=False), text


def test_a_text_about_markup_has_no_fault_and_stays() -> None:
    for text in ABOUT:
        assert not fault(text, f"{text} ", both=False) and not fault(text, f"{text} ", both=True)
        assert repaired(text) == text


def test_markup_is_compared_by_names() -> None:
    links = '<a href="en.html">a <b>c</b></a>', "<B>c</B> <a href=de.html>a</a>"
    assert same_tags(*links) and not fault(*links, both=False) and fault(*links, both=True)
    assert remove_tags(*links) == ("a c", "c a")
    assert fault('say "<b>no</b>"', 'sag "nein"', both=False)
    # Code, or not translated.
    assert not fault(links[0], links[0], both=True)
    assert remove_tags(links[0], links[0]) == (links[0], links[0])
    for other in ("<i>c</i>", "<b>c", "c"):
        assert not same_tags("<b>c</b>", other) and fault("<b>c</b>", other, both=False)
    # A name that is a word, too, is a tag if the other side has nothing like it.
    assert fault("<title>News", "Neues", both=False)
    assert not fault("the <title>", "das Element <title>", both=True)
    assert not fault("a <form>", "ein <Formular>", both=False)
    # Which entities there are is a matter of the language.
    assert not fault("&quot;a&quot;", "&bdquo;a&ldquo;", both=False)


@pytest.mark.parametrize(
    "piece",
    ["<b>x</b> y ", "<a ", '<a "', "<!--<", 'a="', "&amp;"],
)
def test_a_long_line_takes_no_minutes(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    fault("a word", text, both=False)
    repaired(text)
    assert time.process_time() - start < 2
