"""Tags, comments and entities of HTML and XML, also what is left of them where a line was cut.

No markup: a name alone in angle brackets (<stdio.h>, <FILE>), and signs (a < b, <3, R&D). A text
about markup (the <b> tag, "&amp;", <form> ... </form>) has no fault, and is not repaired.
"""

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html.entities import name2codepoint
from itertools import accumulate, islice

from transformer.data.corpora.split import NumberedPair
from transformer.quality.check import SIDES, Fault, quoted

# A comment, or the parts of what may be a tag: slash, name, and what follows it. A quoted value may
# have a ">". What is possessive (*+) keeps the time linear.
_TAG = re.compile(
    r"""<!--(?:[^<]|<(?!!--))*?-->"""
    r"""|<\s?(/?)\s?([A-Za-z](?:[\w:-]*\w)?)(\s(?:"[^"<]*"|'[^'<]*'|[^<>])*+|/)?>"""
)
_ATTRIBUTE = re.compile(r"\s+[\w:-]+\s?=\s?[\"'“”„«\w#./]")
# Tags of HTML that are no words, so that no placeholder and no key has such a name.
_BLOCKS = (
    "blockquote|body|br|center|colgroup|dd|div|dl|dt|fieldset|figcaption|frameset|h[1-6]|head|hr|"
    "html|iframe|img|li|meta|nobr|noscript|ol|pre|tbody|textarea|tfoot|thead|t[dhr]|ul|wbr"
)
_MULTI = rf"(?:{_BLOCKS}|abbr|acronym|big|em|font|kbd|small|span|strike|strong|su[bp]|tt)"
_HTML = re.compile(rf"{_MULTI}|[bipu]", re.IGNORECASE)
# These are words, too: tags where the other side has nothing in angle brackets.
_HTML_ALONE = re.compile(
    rf"{_HTML.pattern}|a|address|article|aside|button|caption|cite|code|footer|form|header|input|"
    "label|legend|link|main|nav|option|q|s|script|section|select|style|svg|table|title",
    re.IGNORECASE,
)
# These stand between words, the others around them.
_BLOCK = re.compile(rf"{_BLOCKS}|p|para|simpara|caption|legend", re.IGNORECASE)
# What a repair removes: elements that stand around words of a sentence, in HTML and in DocBook,
# and those that need no end.
_AROUND = re.compile(
    rf"{_MULTI}|[abipqsu]|caption|cite|code|del|dfn|ins|label|legend|mark|samp|var|"
    "acronym|application|command|emphasis|filename|firstterm|gui[a-z]*|keycap|literal|para|"
    "productname|qt|replaceable|simpara|systemitem|ulink|userinput|varname",
    re.IGNORECASE,
)
# Around a single letter, `a<b>c`: operands are short.
_OPERAND_BEFORE = re.compile(r"(?:^|\W)\w{1,2}$")
_OPERAND_AFTER = re.compile(r"\w{1,2}(?!\w)")
# Beside whole tags and comments: declarations, comments that do not end, and halves of tags.
_REST = re.compile(
    r"<!--|<!\[CDATA\[|<!DOCTYPE\b|<\?(?:xml|php)\b"
    r"|<[A-Za-z][\w:-]*\s[\w:-]+=[\"']"
    r"|^[^<>]*\w=(?:\"[^\"<>]*\"|'[^'<>]*')\s?/?>"
    rf"|^\s?(?:/[A-Za-z]\w*|{_MULTI}\s?/?)>"
    rf"|<(?:/(?:[A-Za-z]\w*)?|{_MULTI}\s?/?)\s?$",
    re.IGNORECASE,
)
# Most texts have none, and nothing else is looked for in them.
_SIGN = re.compile("[<>&]")
# Of tokenized text, too (& quot ;), and without the semicolon that people forget.
_ENTITY = re.compile(
    r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    r"|& ?(?:# ?[0-9]{2,5}|nbsp|amp|quot|apos|lt|gt) ?;"
    r"|&(?:#[0-9]{2,5}|nbsp|amp|quot)(?![\w;=])"
)
# Names of HTML 4, without those that are words: &image; and &int; are variables of a program or
# entities of another document.
_WORDS = "and cap cup empty exist image int lang not or part prod prop rang real sim sub sum sup"
_NAMES = {*name2codepoint, "apos"}.difference(_WORDS.split())
# An entity of an entity, and so on, is seldom deeper: &amp;amp;nbsp;
_DEPTH = 3
_BLANK = re.compile("[\t-\r\xa0\u2028\u2029]")

# Words of a text about markup. "Tag" is a German day.
_SUBJECT = re.compile(
    r"(?<![./])\b(?:tags?|Tags|(?i:elements?|attributes?|markup|x?html\d?|x[ms]l\w*|sgml|dtd|cdata"
    r"|docbook|entit(?:y|ies)|(?:un)?escap\w+|(?:angle|pointed)[- ]brackets?|ampersands?"
    r"|placeholders?|character references?|source code|page source|markdown|latex|roff|pango"
    r"|bold(?:face)?|italics?|underlin\w+|rich text|line ?breaks?|newlines?|syntax"
    r"|convert\w*|konvertier\w*|umge\w*wandelt|encod\w+|[ck]odier\w*"
    r"|fett\w*|kursiv\w*|(?:unter|durch)gestrichen\w*|unterstr\w+|zeilenumbr\w+"
    r"|elemente[ns]?|attribut(?:e[ns]?|s)?|\w*entität(?:en)?|\w*maskier\w+|auszeichnungs\w+"
    r"|platzhaltern?|spitzen? klammern?|zeichenreferenz(?:en)?|quelltext\w*|quellcode\w*"
    r"|éléments?|balises?|entités?|étiquettes?|etichett[ae]|etiquetas?|entidad(?:es)?|elementos?))\b"
    r"|\b(?:Examples?|Beispiele?|Output|Ausgabe|Input|Eingabe):"
)
_OPEN = "[\"'`´‘’“”„‚«»‹›(\\[{=]"
_CLOSE = "[\"'`´‘’“”„‚«»‹›)\\]}]"
_BEGIN = r"<[A-Za-z][^<>]*>"
_ANY = r"<[^<>]*>"
# A tag in quotes or brackets, in a compound or a list, or around an ellipsis; an element in quotes
# or as an example.
_MENTION = re.compile(
    rf"{_OPEN}\s?{_ANY}(?:\.\.\.|…)?\s?{_CLOSE}"
    rf"|[\"'`´‘’“”„‚«»‹›]{_BEGIN}[^<>]*</[^<>]*>[\"'`´‘’“”„‚«»‹›]"
    rf"|{_BEGIN}-\w|{_ANY}[-‑](?:[Tt]ag|[Ee]lement|Attribut)|\bTags? {_ANY}(?![\w„“])"
    rf"|{_BEGIN} (?:[Tt]ags?|[Ee]lement\w*)\b"
    rf"|{_BEGIN}\s?(?:\.\.\.|…|\[…\]|\[\.\.\.\])\s?</"
    rf"|{_BEGIN}(?:,? ?[/|,] ?|,? (?:and|or|und|oder|bzw\.|et|ou|y|o|e) ){_BEGIN}"
    rf"|{_BEGIN} (?:\w+ ){{1,2}}{_BEGIN}(?!\w)"
    rf"|(?:[Ee]xamples?|[Bb]eispiele?|\be\. ?g\.|\bz\. ?B\.)[:,]? ?{_BEGIN}|\w-{_BEGIN}"
    # B<bold> of a manual, and not H<sub>2</sub>O.
    r"|(?<![^\W_])[A-Z]<(?!/|su[bp]>)"
    # What one types, or what something looks like.
    r"|(?i:\b(?:writ\w+|typ(?:e[sd]?|ing)|us(?:e[sd]?|ing)|insert\w*|instead of|as|like|into"
    r"|schreib\w*|tipp\w*|verwende\w*|benutz\w*|als|wie|statt|anstelle von)(?: Sie)?:? "
    r"<(?:[abiu]|em|font|small|span|strike|strong|tt)(?: [^<>]*)?>)"
)
# Code of a program, of TeX or of Markdown.
_CODE = re.compile(r"[\\{}`]|\*\*|\w\(\)|;\s*$|[=!]=|&&|\|")
# An entity in quotes or brackets, one of two that stand alone in a list, or one that is the subject
# of a sentence or its object.
_ALONE = r"&(?:lt|gt|amp|quot|apos|nbsp|#\w+);"
_ENTITY_MENTION = re.compile(
    rf"{_OPEN}\s?&#?\w+;?(?:\s?{_CLOSE}| \w)"
    rf"|(?<!\S){_ALONE}(?:,? ?[/|,] ?|,? (?:(?:and|or|und|oder|et|ou|y|o|e) )?)"
    rf"{_ALONE}(?![^\s.,;:)])"
    rf"|(?<!\S){_ALONE} (?:is|stands|means|becomes|for|instead|ist|steht|bedeutet|wird|für|statt)\b"
    r"|(?i:\b(?:use|write|type|the|with|by|of|verwende\w*|benutze\w*|schreibe\w*|das|mit"
    rf"|durch|von)(?: Sie)?) {_ALONE}(?!\S|\s\d)"
)
_BRACKETED = re.compile(r"<[^\s<>][^<>]*>?")
# What else is in angle brackets: <file>, <%s id='%s'>, <ann@example.org>.
_PLACEHOLDER = re.compile(r"<[A-Za-z%$][^<>]*>")
# The rest of a text without its markup has no name in angle brackets and no half of a tag.
_BRACKET = re.compile(r"<[A-Za-z/!?%$]|[\w\"'/]>")
# A comment that says something, unlike <!--more--> and <!-- and -->.
_COMMENT = re.compile(r"<!--\s(?!\w{,3}\s-->).*\w.*\s-->")
_COMMENT_WORD = re.compile(r"[Cc]omment|[Kk]omment")
# What shows what an element does: <b>bold</b>.
_SHOWN = re.compile(
    r"\s*(?:(?:some|your|any|the) )?(?:text|foo|bar|bold|italics?|underlined?|fett|kursiv|"
    r"unterstrichen)\s*",
    re.IGNORECASE,
)
# An entity between blanks.
_LONE = re.compile(r"(?<![^\s(])&(?:#\w+|[A-Za-z]+);(?=[\s.,;:)]|$)")

_SIGN_ALONE = re.compile(r"(?<!\w)[&<>](?!\w)")
_NAME_OF = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Where a tag may stand that has no other half.
_END = re.compile(r"(?:[\w.!?…:;,)%。！？]|[.!?…。！？]\s+)$")
_START = re.compile(r"[\w%&$„“”\"«»(]")
# A line with more tags stays: each is looked for in all of it.
_MOST = 200
# Signs beside a tag that decide.
_NEAR = 20
# What may stand before an element that is a block: nothing, a whole sentence, or a bullet.
_BEFORE_BLOCK = re.compile(r"(?:^|[.!?…。！？][\"'”“»)]?|^\W+)\s*$")


def same_tags(source: str, target: str) -> bool:
    """Whether both texts have the same tags and comments, in any order and with any attributes."""
    has_any = "<" in source or "<" in target
    return not has_any or _count(_tags(source)) == _count(_tags(target))


def decode_entities(source: str, target: str) -> tuple[str, str]:
    """Return both texts with what their entities stand for; a plain space for ``&nbsp;``.

    The same for tabs and line ends, which would part fields and lines of a file. Texts about
    entities stay as they are, and so do texts with tags, whose attributes need them.
    """
    texts = (source, target)
    if "&" not in source + target or any(map(_tags, texts)):
        return texts
    # What a text is about is on both sides.
    is_on_both = all(map(_ENTITY.search, texts))
    if is_about_markup(*texts) if is_on_both else any(map(_mentions_entity, texts)):
        return texts
    if all(any(_is_shown(lone) for lone in _LONE.finditer(text)) for text in texts):
        return texts
    after = _decoded(source), _decoded(target)
    # What is still in it is shown, not marked up: It prints &lt;b&gt;.
    return texts if any(map(_tags, remove_tags(*after))) else after


def remove_tags(source: str, target: str) -> tuple[str, str]:
    """Return both texts without their tags and comments, a space for those between words.

    Only if both have the same ones, in any order and with any attributes, nothing else in angle
    brackets, and each marks up its text: an element around words, or a tag at an end of the line,
    of a sentence or of a word. Texts about tags stay as they are.
    """
    texts = (source, target)
    if "<" not in source or "<" not in target or is_about_markup(*texts):
        return texts
    tags = _tags(source), _tags(target)
    if _count(tags[0]) != _count(tags[1]) or not all(map(_mark_up, tags, texts)):
        return texts
    return _without(tags[0], source), _without(tags[1], target)


def is_about_markup(source: str, target: str) -> bool:
    """Whether two texts are about tags, have other things in brackets, or are the same code."""
    return source == target or any(
        _SUBJECT.search(_BRACKETED.sub("", text))
        or _MENTION.search(text)
        or _mentions_entity(text)
        or _PLACEHOLDER.search("".join(_between(_tags(text, _HTML_ALONE), text)))
        for text in (source, target)
    )


def find_markup_fault(both: bool, pair: NumberedPair) -> Fault | None:
    """Show the first tag or entity if the sides have different markup, or the same if ``both``."""
    signs = [bool(_SIGN.search(text)) for text in pair.texts]
    # A text about markup is translated to another one.
    if not any(signs) or (all(signs) and is_about_markup(*pair.texts)):
        return None
    names = [_HTML if "<" in other_side else _HTML_ALONE for other_side in pair.texts[::-1]]
    kinds, shown = zip(*map(_markup_of, pair.texts, names), strict=True)
    if (kinds[0] == kinds[1]) is not both:
        return None
    # Whole tags and entities on both sides may be what a text is about.
    repairs = (remove_tags, decode_entities)
    if (
        both
        and not kinds[0]["rest"]
        and all(repair(*pair.texts) == pair.texts for repair in repairs)
    ):
        return None
    faults = (Fault(side, text) for side, text in zip(SIDES, shown, strict=True) if text)
    return next(faults, None)


def _is_known(name: str) -> bool:
    return bool(_HTML.fullmatch(name) or _AROUND.fullmatch(name))


def _mentions_entity(text: str) -> bool:
    """Whether a text quotes an entity, or has one beside its sign: "& becomes &amp;"."""
    if "&" not in text:
        return False
    plain = _ENTITY.sub("", "".join(_between(_tags(text), text)))
    is_beside = any(_NAME_OF[sign] in text for sign in set(_SIGN_ALONE.findall(plain)))
    return is_beside or _ENTITY_MENTION.search(text) is not None


def _is_shown(lone: re.Match[str]) -> bool:
    """Whether an entity is shown, and no part of its text: a letter, a no-break space, or a sign
    that ends a sentence, unlike 5 &euro;, or begins one: &copy; gives the sign."""
    sign = _expanded(lone[0])
    text = lone.string
    if len(sign) > 1:  # another name
        return False
    before, after = text[: lone.start()].rstrip(), text[lone.end() :].lstrip()
    ends = (not after or after[0] in ".,;:)") and before[-1:].isalpha()
    begins = not before and after[:1].islower()
    return sign.isalpha() or sign == " " or (sign in '©®™§€£&"' and (ends or begins))


def _mark_up(tags: Sequence[re.Match[str]], text: str) -> bool:
    """Whether the tags of a text all mark it up, and nothing else is in angle brackets."""
    plain = "".join(_between(tags, text))
    # Entities of brackets show a tag: H<sub>2</sub>O is written H&lt;sub&gt;.
    if len(tags) > _MOST or _BRACKET.search(_decoded(plain)) or _CODE.search(plain):
        return False
    names = [(tag[2] or "").lower() for tag in tags]
    if not all(_is_known(name) for name in names if name):
        return False
    if "" in names and _COMMENT_WORD.search(plain):
        return False
    removed = accumulate((len(tag[0]) for tag in tags), initial=0)
    positions = [tag.start() - before for tag, before in zip(tags, removed, strict=False)]
    elements = list[tuple[int, int]]()
    alone = list[int]()
    open_tags = list[int]()
    open_names = Counter[str]()
    for number, (tag, name) in enumerate(zip(tags, names, strict=True)):
        if tag[1] and open_names[name]:
            open_names[name] -= 1
            while names[open_tags[-1]] != name:
                alone.append(open_tags.pop())
                open_names[names[alone[-1]]] -= 1
            elements.append((open_tags.pop(), number))
        elif tag[1] or not name:
            alone.append(number)
        else:
            open_tags.append(number)
            open_names[name] += 1
    alone += open_tags
    return all(
        _is_around(tags[first], tags[last], text, plain, (positions[first], positions[last]))
        for first, last in elements
    ) and all(_stands_alone(tags[index], text, plain, positions[index]) for index in alone)


def _is_around(
    first: re.Match[str], last: re.Match[str], text: str, plain: str, positions: tuple[int, int]
) -> bool:
    """Whether an element marks up its words, unlike <b> and </b>, <b></b> and <b>bold</b>."""
    words = plain[slice(*positions)]
    if _HTML.fullmatch(first[2]) and _SHOWN.fullmatch(words):
        return False
    if _BLOCK.fullmatch(first[2]):
        # No word of a sentence: It gives <p>Hello</p>.
        before = plain[max(0, positions[0] - _NEAR) : positions[0]]
        is_first = _BEFORE_BLOCK.search(before) or text[first.start() - 1] == ">"
        follows = plain[positions[1] : positions[1] + _NEAR].lstrip()[:1]
        return bool(is_first) and not (follows.islower() or follows in {*".,;:)"})
    again = re.finditer(rf"(?<!\w){re.escape(words.strip())}(?!\w)", plain)
    if len(list(islice(again, 2))) > 1:
        return False  # Change <b>word</b> to *word*.
    is_free = text[last.start() - 1].isspace() and text[first.end()].isspace()
    is_whole = last.end() - first.start() == len(text) and len(words.split()) > 4
    # Tokenized text has spaces within tags, too.
    return bool(words.strip()) and bool(
        not is_free or is_whole or first[3] or first[0][1].isspace()
    )


def _stands_alone(tag: re.Match[str], text: str, plain: str, position: int) -> bool:
    """Whether a comment, or a tag without its other half, is at an end of a line, sentence or word.

    Of the line alone, if it begins what is not a block: one of the keys <b> and <i> is no tag.
    """
    before, after = plain[max(0, position - _NEAR) : position], plain[position : position + _NEAR]
    is_at_an_end = bool(_END.search(before) or _START.match(after))
    if not tag[2]:
        is_inside = (before.strip() and after.strip()) or after.lstrip()[:1].islower()
        return bool(_COMMENT.fullmatch(tag[0])) and (is_at_an_end or not is_inside)
    if not tag[1] and before.strip():
        # list<p> is of a program.
        is_type = tag[2].lower() == "p" and text[tag.start() - 1].isalnum()
        return is_at_an_end and not is_type and bool(_BLOCK.fullmatch(tag[2]))
    return is_at_an_end


def _markup_of(text: str, names: re.Pattern[str]) -> tuple[Counter[str], str | None]:
    """Return the markup of a text by kind, and the first tag or entity in words."""
    tags = _tags(text, names)
    kinds = _count(tags)
    plain = _without(tags, text)
    signs = [(text, tag) for tag in tags[:1]]
    if "<" in plain or ">" in plain:
        brackets = list(_REST.finditer(plain))
        kinds["rest"] = len(brackets)
        signs += [(plain, tag) for tag in brackets[:1]]
    # In text with tags, which entities there are is a matter of the language.
    entities = (
        match for match in _ENTITY.finditer(text) if not tags and _expanded(match[0]) != match[0]
    )
    entity = next(entities, None)
    if entity is not None:
        kinds["entities"] = 1
        signs.append((text, entity))
    if not signs:
        return kinds, None
    whole, tag = signs[0]
    return kinds, f"{quoted(tag[0])} in {quoted(whole, tag.start())}"


def _tags(text: str, names: re.Pattern[str] = _HTML) -> list[re.Match[str]]:
    tags = list(_TAG.finditer(text)) if "<" in text else []
    closed = {tag[2] for tag in tags if tag[1]}
    return [tag for tag in tags if not tag[2] or tag[2] in closed or _is_tag(tag, text, names)]


def _count(tags: Iterable[re.Match[str]]) -> Counter[str]:
    return Counter(f"{tag[1]}{tag[2].lower()}" if tag[2] else "comment" for tag in tags)


def _between(tags: Iterable[re.Match[str]], text: str) -> Iterator[str]:
    """Yield the pieces of a text before, between and behind its tags."""
    end = 0
    for tag in tags:
        yield text[end : tag.start()]
        end = tag.end()
    yield text[end:]


def _without(tags: Sequence[re.Match[str]], text: str) -> str:
    blanks = [" " if _parts_words(tag, text) else "" for tag in tags]
    return "".join(map(str.__add__, _between(tags, text), [*blanks, ""]))


def _parts_words(tag: re.Match[str], text: str) -> bool:
    if not tag[2] or _BLOCK.fullmatch(tag[2]):
        return True
    # As in <b>Note:</b>The disk is full.
    before, after = text[tag.start() - 1], text[tag.end() : tag.end() + 1]
    return bool(tag[1]) and after.isupper() and (before.islower() or before in ".:!?")


def _decoded(text: str) -> str:
    for _ in range(_DEPTH):
        text = _ENTITY.sub(lambda entity: _expanded(entity[0]), text)
    return text


def _is_tag(tag: re.Match[str], text: str, names: re.Pattern[str]) -> bool:
    name = tag[2]
    attributes = tag[3] or ""
    if attributes.rstrip().endswith("/") or _ATTRIBUTE.match(attributes):
        return True
    if attributes.strip() or not names.fullmatch(name):
        return False
    if len(name) > 1:
        return True
    before, after = text[max(0, tag.start() - 3) : tag.start()], text[tag.end() : tag.end() + 3]
    is_comparison = _OPERAND_BEFORE.search(before) and _OPERAND_AFTER.match(after)
    # A type: Set<U>.
    is_type = name.isupper() and before[-1:].isalnum() and not after[:1].isalnum()
    return not (is_comparison or is_type or tag[0][1].isspace())


@lru_cache(1000)
def _expanded(entity: str) -> str:
    """Return what an entity stands for; another name stands for itself."""
    compact = entity.replace(" ", "").rstrip(";") + ";"
    if compact[1] != "#" and compact[1:-1] not in _NAMES:
        return entity
    return _BLANK.sub(" ", html.unescape(compact))
