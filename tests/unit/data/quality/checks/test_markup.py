"""Markup is recognised whole or cut off, told apart from signs, and removed."""

import time

import pytest

from transformer.data.quality.base import NumberedPair
from transformer.data.quality.checks.markup import (
    decode_entities,
    find_markup_fault,
    remove_tags,
    same_tags,
)

# A text, and what is left of it.
WHOLE = [
    ("a <b>bold</b> word", "a bold word"),
    ("one<br/>two<BR >three<p>four", "one two three four"),
    ("<para>A word.</para>", "A word."),
    ('see <link linkend="here"> there', "see  there"),
    ('<a title="a > b" href=http://a.org/>here</a>', "here"),
    ("<font color=red>red", "red"),
    ("red</span>", "red"),
    ("< b > bold < / b >", " bold "),
    ("a<!-- a <b>note</b> -->b", "a b"),
    ("Bed &amp; Breakfast, &#228;&#xE4; &ldquo;x&rdquo;", "Bed & Breakfast, ää “x”"),
    ("a&nbsp;b&nbsp c", "a b  c"),
    ("& quot ; it & # 39 ; s & quot ;", '" it \' s "'),
    ("Tom &amp;amp; Jerry", "Tom & Jerry"),
    ("&lt;b&gt;bold&lt;/b&gt; &amp;lt;br&amp;gt;", "bold  "),
]
BROKEN = ['see <a href="x', "font color='red'>red", "br>two", "/p>two", "one<br", "one</b", "one</"]
BROKEN += ["a <!-- note", "<![CDATA[x]]>", '<?xml version="1.0"?>', "<!DOCTYPE html> x"]
NONE = [
    "a < b and b > c & d; R&D, AT&T, Q & A; M&M's",
    "I <3 you, </3, -> and <-, <=, => and <>",
    "#include <stdio.h>, write to <a@b.org> or <URL:https://b.org/c> or <www.b.org/>",
    "copy <source> <target>; press <Enter> or <Del>",
    "List<String>, vector<T>, Set<U>, Map<K, V>, template <class T>",
    "if a<b>c or x<y and y>z or p<i and q>u or p>0.05",
    "see page.cgi?a=1&size=2&lt=3; and so on",
    "A --> B, >>> print, > quoted, (<5 %), <10 and >5",
]


def fault(source: str, target: str, *, both: bool) -> bool:
    return find_markup_fault(both, NumberedPair(1, source, target)) is not None


@pytest.mark.parametrize(("text", "plain"), WHOLE)
def test_whole_markup_is_found_and_removed(text: str, plain: str) -> None:
    assert fault("a word", text, both=False) and fault(text, text, both=True)
    assert not fault("a word", text, both=True) and not fault(text, text, both=False)
    assert remove_tags(decode_entities(text)) == plain
    assert not fault("a word", plain, both=False)


@pytest.mark.parametrize("text", BROKEN)
def test_a_piece_of_markup_is_found_and_stays(text: str) -> None:
    assert fault("a word", text, both=False) and fault(text, text, both=True)
    assert remove_tags(decode_entities(text)) == text


@pytest.mark.parametrize("text", NONE)
def test_signs_and_names_in_brackets_are_no_markup(text: str) -> None:
    assert not fault("a word", text, both=False) and not fault(text, text, both=True)
    assert remove_tags(decode_entities(text)) == text


def test_markup_is_compared_by_names() -> None:
    links = '<a href="en.html">a <b>c</b></a>', "<B>c</B> <a href=de.html>a</a>"
    assert same_tags(*links) and not fault(*links, both=False) and fault(*links, both=True)
    for other in ("<i>c</i>", "<b>c", "c"):
        assert not same_tags("<b>c</b>", other) and fault("<b>c</b>", other, both=False)
    # A name that is a word, too, is a tag if the other side has nothing like it.
    assert fault("<title>News", "Neues", both=False)
    assert not fault("the <title>", "das Element <title>", both=True)
    assert not fault("a <form>", "ein <Formular>", both=False)
    # Which entities there are is a matter of the language.
    assert not fault("&quot;a&quot;", "&bdquo;a&ldquo;", both=False)


@pytest.mark.parametrize(
    "piece", ["<", "<a ", '<a "', "<a b=", "</", "<!--", "<!--<", 'a="', "&", "&amp", "&amp;", ">"]
)
def test_a_long_line_takes_no_minutes(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    fault("a word", text, both=False)
    remove_tags(decode_entities(text))
    assert time.process_time() - start < 2
