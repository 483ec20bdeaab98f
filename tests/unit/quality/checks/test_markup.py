"""Markup is recognized whole or cut off, told apart from signs, and removed."""

import time

import pytest

from transformer.data.corpora.split import NumberedPair
from transformer.quality.checks.markup import (
    decode_entities,
    find_markup_fault,
    remove_tags,
    same_tags,
)

# A text, and what is left of it.
WHOLE = [
    ("a <b>heavy</b> word", "a heavy word"),
    ("one<br/>two<BR >three.<p>four", "one two three. four"),
    ("<para>A word.</para><para>Two.</para>", " A word.  Two. "),
    ("un<b>believ</b>able", "unbelievable"),
    ("<b>Note</b>The disk is full.", "Note The disk is full."),
    ('<a title="a > b" href=http://a.org/>here</a>', "here"),
    ("<font color=red>red", "red"),
    ("red</span>", "red"),
    ("< b > heavy < / b >", " heavy "),
    ("a<!-- a <b>note</b> -->b", "a b"),
    ("Bed &amp; Breakfast, &#228;&#xE4; &ldquo;x&rdquo;", "Bed & Breakfast, ää “x”"),
    ("a&nbsp;b&nbsp c", "a b  c"),
    ("& quot ; it & # 39 ; s & quot ;", '" it \' s "'),
    ("Tom &amp;amp; Jerry", "Tom & Jerry"),
    ("&lt;b&gt;heavy&lt;/b&gt; word.&amp;lt;br&amp;gt;", "heavy word. "),
]
# Not repaired: perhaps a text about markup.
UNCLEAR = ["Surround it with <em> and </em>.", "press <b> to go back", "a line ends with <br>"]
UNCLEAR += ["type <b>text</b> here", "<b></b>", "insert <!--more--> here", "a blank is &nbsp; here"]
UNCLEAR += ["it gives <p>Hello</p> then", "it reads <td>Name</td>.", "insert <!-- more --> here"]
UNCLEAR += [
    "type <b>word</b> here",
    "links look like <a href='x'>here</a>",
    "keys: <i>nsert, <u>ndo",
]
UNCLEAR += ["H<sub>2</sub>O is H&lt;sub&gt;2&lt;/sub&gt;O"]
UNCLEAR += ["return <b>{name}</b>;", "the sign is &copy;", "&copy; gives the sign"]
BROKEN = ['see <a href="x', "font color='red'>red", "br>two", "/p>two", "one<br", "one</b", "one</"]
BROKEN += ["a <!-- note", "<![CDATA[x]]>", '<?xml version="1.0"?>', "<!DOCTYPE html> x"]
ABOUT = [
    "HTML 3.2 with <font> tags",
    "einigen <meta>-Tags",
    "das »<HTML>«-Element",
    "entity (such as “&amp;”)",
    "represents a single HTML <form> ... </form> instance",
    "initial text (e.g. <caption> ... </caption>)",
    "paths other than </home/>, edit </etc/tunables/home>",
    "press <Enter> or <Del> and <b>wait</b>",
    "the characters &lt; and &gt; are special",
    "write &lt; instead of <",
    "use &lt; for a less-than sign",
    "supports <b>, <i> or <u>",
    "replaces <strong> by <b>",
    'echo "<b>hello</b>"',
    "see <xref linkend='here'/> and `<br>`",
    "B<p> or I<i>",
    "example: <a href='x'>here</a>",
    "set <debug>yes</debug> there",
    "&image; and &int; are macros",
]
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


def repaired(text: str) -> str:
    """What is left of a text whose other side has the same markup."""
    texts = text, f"{text} "
    for step in (decode_entities, remove_tags):
        texts = step(*texts)
    return texts[0]


@pytest.mark.parametrize(("text", "plain"), WHOLE)
def test_whole_markup_is_found_and_removed(text: str, plain: str) -> None:
    assert fault("a word", text, both=False) and fault(text, f"{text} ", both=True)
    assert not fault("a word", text, both=True) and not fault(text, f"{text} ", both=False)
    assert repaired(text) == plain
    assert not fault("a word", plain, both=False)


@pytest.mark.parametrize("text", BROKEN)
def test_halves_of_tags_are_found_and_stay(text: str) -> None:
    assert fault("a word", text, both=False) and fault(text, f"{text} ", both=True)
    assert repaired(text) == text


@pytest.mark.parametrize("text", UNCLEAR)
def test_whole_markup_that_may_be_meant_is_a_fault_of_one_side_alone(text: str) -> None:
    assert fault("a word", text, both=False) and not fault(text, f"{text} ", both=True)
    assert repaired(text) == text


@pytest.mark.parametrize("text", ABOUT)
def test_a_text_about_markup_has_no_fault_and_stays(text: str) -> None:
    assert not fault(text, f"{text} ", both=False) and not fault(text, f"{text} ", both=True)
    assert repaired(text) == text


@pytest.mark.parametrize("text", NONE)
def test_signs_and_names_in_brackets_are_no_markup(text: str) -> None:
    assert not fault("a word", text, both=False) and not fault(text, f"{text} ", both=True)
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
    [
        "<b>x</b> y ",
        "<",
        "<a ",
        '<a "',
        "<a b=",
        "</",
        "<!--",
        "<!--<",
        'a="',
        "&",
        "&amp",
        "&amp;",
        ">",
    ],
)
def test_a_long_line_takes_no_minutes(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    fault("a word", text, both=False)
    repaired(text)
    assert time.process_time() - start < 2
