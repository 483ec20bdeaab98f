"""HTML and XML come back with every tag once, nested as it was, around the right words."""

import asyncio
import re
import time
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.serving.marked import Words, dictionary, options, repeat, service, upper_case
from transformer.serving.formats.marked_text import translate_texts
from transformer.serving.formats.markup import Rules

HTML, XML = Rules(), Rules(xml=True, kept={"x"}, splitting={"p"})
TAGS = re.compile(r"<[^<>]*>")
WORDS_AND_TAGS = """
<b> </b> <i> </i> </a> <p> </p> <br> <img> <code> </code> <pre> </pre> <sup> </sup> <script>
</script> < &amp; &#233; foo bar. Baz 1 é ( <x> </x> <e/> &nbsp; <!--> <!---> --!>
"""
WITH_BLANKS = ["<a class='notranslate x'>", "<b translate=no>", "<i translate=yes>", "<!-- x -->"]
WITH_BLANKS += ["<![CDATA[a <b> c]]>", "</ p>", " ", "\n", "\u3000"]
FRAGMENTS = [*WORDS_AND_TAGS.split(), *WITH_BLANKS]
SOURCES = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)


def translated(source: str, words: Words, rules: Rules = HTML) -> str:
    [result] = asyncio.run(translate_texts(service(words), [source], options(), rules))
    return result.text


def nests(source: str) -> bool:
    """Whether each element ends inside the one that it began in."""
    opened: list[str] = []
    for end, name in re.findall(r"<(/?)(a|b|i|p|code|pre|sup|script)\b[^<>]*>", source):
        if not end:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


@pytest.mark.thorough
@settings(deadline=None)
@given(source=SOURCES | st.text(alphabet="<>/!-&;=\"' abp\n\xa0\x1c\ufeff", max_size=40))
def test_a_model_that_repeats_gives_the_source(source: str) -> None:
    assert translated(source, repeat) == source
    assert translated(source, repeat, XML) == source


@settings(deadline=None)
@given(source=SOURCES, seed=st.integers(0, 99))
def test_any_source_keeps_its_tags_and_nesting(source: str, seed: int) -> None:
    def shuffled(words: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
        random = Random(seed)
        order = random.sample(range(len(words)), len(words))
        links = [(source, target) for target, source in enumerate(order) if random.random() < 0.8]
        return [words[index].upper() for index in order], links

    result = translated(source, shuffled)
    assert Counter(TAGS.findall(result)) == Counter(TAGS.findall(source))
    assert nests(result) or not nests(source)


@pytest.mark.parametrize(
    "placeholder", ["{name}", "%1$s", "${x}", "{{ user }}", "http://a.de/x/", "_me@x.org"]
)
def test_a_placeholder_stands_as_in_the_source(placeholder: str) -> None:
    def noisy(words: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
        """Each word is linked to the one before it, as attention may do."""
        kept = placeholder.split()
        written = [word if word.rstrip(".") in kept else word.upper() for word in words]
        return written, [(max(0, number - 1), number) for number in range(len(words))]

    found = translated(f"<p><b>Dear</b> {placeholder} hello {placeholder}.</p>", noisy)
    assert f" {placeholder} HELLO {placeholder}." in found
    # Its own tags stay around it.
    found = translated(f"<p>Dear <b>{placeholder}</b> hello</p>", noisy)
    assert f"<p>DEAR <b>{placeholder}" in found


GERMAN = dictionary(
    {"the": "das", "big": "große", "house": "Haus", "I": "ich", "see": "sehe"}
    | {"not": "nicht", "in": "", "up": "auf", "old": "sehr alte"},
    order={3: (2, 0, 1), 4: (0, 3, 1, 2), 5: (0, 2, 3, 4, 1)},
)
TABLE = [
    # Four words become 0 3 1 2: I house see the; five become 0 2 3 4 1.
    ("I <b>see</b> the house", "ich Haus <b>sehe</b> das"),
    ("<p>I <b>see <i>the</i></b> house.</p>", "<p>ich Haus. <b>sehe <i>das</i></b></p>"),
    ("I <b>see the <i>big</i> house</b>", "ich <b>das <i>große</i> Haus sehe</b>"),
    (
        "I <a href='x'>see</a><sup>[1]</sup> the house",
        "ich Haus <a href='x'>sehe</a><sup>[1]</sup> das",
    ),
    ("not <img> up", "nicht <img> auf"),
    ("<i class=icon></i> not up <i></i>", "<i class=icon></i> nicht auf <i></i>"),
    ("<b>in</b> up", "<b>auf</b>"),
    ("the <b>old</b>, not", "nicht das <b>sehr alte</b>,"),
    ("(<b>not</b>) up", "(<b>nicht</b>) auf"),
    ("un<b>see</b>n up", "<b>UNSEEN</b> auf"),
    ("<b>not</b><i>up</i>", "<b>NOTUP</b><i></i>"),
    ("<b>I &amp; not</b> &lt; up", "<b>ich nicht</b> &lt; auf &amp;"),
    ("<b>not <i>up</b> not</i>", "<b>nicht <i>auf</b> nicht</i>"),
    ("not<br>up <script>if (a < b) {}</script>", "nicht<br>auf <script>if (a < b) {}</script>"),
    ("<title>not &amp; <b></title>", "<title>&lt;B&gt; nicht &amp;</title>"),
    (
        "<div translate=no>not <b translate=yes>not</b></div> not",
        "<div translate=no>not <b translate=yes>nicht</b></div> nicht",
    ),
    ('<P TRANSLATE="NO">not</P> <P CLASS=notranslate>not</P>',) * 2,
    ("<p>not&nbsp;<b>up</b></p>\u3000the", "<p>nicht <b>auf</b></p>\u3000das"),
    ("<p>\n  not up\n</p>&nbsp;<p>&nbsp;not </p>", "<p>\n  nicht auf\n</p>&nbsp;<p>\xa0nicht </p>"),
    ("<!--> not <!---> up <!-- a > --!>", "<!--> nicht <!---> auf <!-- a > --!>"),
    ("</ not>not </", "</ not>nicht &lt;/"),
    (f"<b id='&#{'9' * 5000};'>not</b> &#{'0' * 5000}33", f"<b id='&#{'9' * 5000};'>nicht</b> !"),
    # Only the second sentence is too long for links.
    (f"I <b>see</b> the house. {'Up ' * 300}.", f"ich Haus. <b>sehe</b> das {'UP ' * 300}."),
]


def test_tags_go_where_their_words_went() -> None:
    for source, expected in TABLE:
        assert translated(source, GERMAN) == expected


def test_xml_is_cut_where_it_is_asked_for() -> None:
    source = "<d><t>a b</t> <p>c <B>d</B> e<x>f</x></p></d>"
    backwards = dictionary({}, order={n: tuple(reversed(range(n))) for n in range(9)})
    title = "<d><t>B A</t> "
    for rules, expected in (
        (Rules(True, (), (), outline=True), title + "<p><x>EF</x> <B>D</B> C</p></d>"),
        (Rules(True, {"x"}, {"t"}), title + "<p>E <B>D</B> C<x>f</x></p></d>"),
        (
            Rules(True, {"x"}, (), outline=True, inline={"t", "p", "d"}),
            "<d><p>E <B>D</B> C<x>f</x></p> <t>B A</t></d>",
        ),
    ):
        assert translated(source, backwards, rules) == expected


HOSTILE = ["<b translate=yes>", "<i>a</i> ", "a <img>", "</ ", "><!-- --!", ">&nbsp;a", "<a x='"]


@pytest.mark.parametrize("fragment", HOSTILE)
def test_hostile_input_takes_linear_time(fragment: str) -> None:
    def seconds(scale: int) -> float:
        start = time.process_time()
        translated("<p" + fragment * (2_500 * scale // len(fragment)) + ">", upper_case)
        return time.process_time() - start

    # Quadratic time would be 16 quarters; 0.2 seconds are for the noise of small inputs.
    longest = 8 * min(seconds(1), seconds(1)) + 0.2
    assert seconds(4) < longest or seconds(4) < longest
