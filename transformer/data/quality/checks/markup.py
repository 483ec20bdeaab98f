"""Tags, comments and entities of HTML and XML, also what is left of them where a line was cut.

No markup: a name alone in angle brackets (<stdio.h>, <FILE>), and signs (a < b, <3, R&D).
"""

import html
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from html.entities import html5

from transformer.data.quality.base import SIDES, Fault, NumberedPair, quoted

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
_BLOCK = re.compile(rf"{_BLOCKS}|p", re.IGNORECASE)
# Around a single letter, `a<b>c`: operands are short.
_OPERAND_BEFORE, _OPERAND_AFTER = re.compile(r"(?:^|\W)\w{1,2}$"), re.compile(r"\w{1,2}(?!\w)")
# Beside whole tags and comments: declarations, comments that do not end, and halves of tags.
_REST = re.compile(
    r"<!--|<!\[CDATA\[|<!DOCTYPE\b|<\?(?:xml|php)\b"
    r"|<[A-Za-z][\w:-]*\s[\w:-]+=[\"']"
    r"|\w=(?:\"[^\"<>]*\"|'[^'<>]*')\s?/?>"
    rf"|^\s?(?:/[A-Za-z]\w*|{_MULTI}\s?/?)>"
    rf"|<(?:/(?:[A-Za-z]\w*)?|{_MULTI}\s?/?)\s?$",
    re.IGNORECASE,
)
# Most texts have none, and nothing else is looked for in them.
_SIGN = re.compile("[<>&]")
# Of tokenised text, too (& quot ;), and without the semicolon that people forget.
_ENTITY = re.compile(
    r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    r"|& ?(?:# ?[0-9]{2,5}|nbsp|amp|quot|apos|lt|gt) ?;"
    r"|&(?:#[0-9]{2,5}|nbsp|amp|quot|apos|lt|gt)(?![\w;=])"
)
# An entity of an entity, and so on, is seldom deeper: &amp;amp;nbsp;
_DEPTH = 3


def decode_entities(text: str) -> str:
    """Return the text with what its entities stand for; ``&nbsp;`` becomes a plain space."""
    for _ in range(_DEPTH):
        if "&" not in text:
            break
        text = _ENTITY.sub(lambda found: _expanded(found[0]), text)
    return text


def remove_tags(text: str) -> str:
    """Return the text without its tags and comments; a space is left of those between words."""
    return _without(_tags(text), text)


def same_tags(source: str, target: str) -> bool:
    """Whether both texts have the same tags and comments, in any order and with any attributes."""
    has_any = "<" in source or "<" in target
    return not has_any or _count(_tags(source)) == _count(_tags(target))


def find_markup_fault(both: bool, pair: NumberedPair) -> Fault | None:
    """Show the first tag or entity if the sides have different markup, or the same if ``both``."""
    if not any(map(_SIGN.search, pair.texts)):
        return None
    names = [_HTML if "<" in other else _HTML_ALONE for other in pair.texts[::-1]]
    kinds, shown = zip(*map(_markup_of, pair.texts, names), strict=True)
    if (kinds[0] == kinds[1]) is not both:
        return None
    found = (Fault(side, text) for side, text in zip(SIDES, shown, strict=True) if text)
    return next(found, None)


def _markup_of(text: str, names: re.Pattern[str]) -> tuple[Counter[str], str | None]:
    """Return the markup of a text by kind, and the first tag or entity in words."""
    tags = _tags(text, names)
    kinds, left = _count(tags), _without(tags, text)
    found = [(text, tag) for tag in tags[:1]]
    if "<" in left or ">" in left:
        rest = list(_REST.finditer(left))
        kinds["rest"] = len(rest)
        found += [(left, tag) for tag in rest[:1]]
    entities = (one for one in _ENTITY.finditer(text) if _expanded(one[0]) != one[0])
    if (entity := next(entities, None)) is not None:
        kinds["entities"] = 1
        found.append((text, entity))
    if not found:
        return kinds, None
    whole, tag = found[0]
    return kinds, f"{quoted(tag[0])} in {quoted(whole, tag.start())}"


def _tags(text: str, names: re.Pattern[str] = _HTML) -> list[re.Match[str]]:
    tags = list(_TAG.finditer(text)) if "<" in text else []
    closed = {tag[2] for tag in tags if tag[1]}
    return [one for one in tags if not one[2] or one[2] in closed or _is_tag(one, text, names)]


def _count(tags: Iterable[re.Match[str]]) -> Counter[str]:
    return Counter(f"{one[1]}{one[2].lower()}" if one[2] else "comment" for one in tags)


def _without(tags: Iterable[re.Match[str]], text: str) -> str:
    parts, end = list[str](), 0
    for one in tags:
        is_between = not one[2] or _BLOCK.fullmatch(one[2])
        parts += [text[end : one.start()], " " if is_between else ""]
        end = one.end()
    return "".join([*parts, text[end:]])


def _is_tag(tag: re.Match[str], text: str, names: re.Pattern[str]) -> bool:
    name, more = tag[2], tag[3] or ""
    if more.rstrip().endswith("/") or _ATTRIBUTE.match(more):
        return True
    if more.strip() or not names.fullmatch(name):
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
    """Return what an entity stands for; a name that HTML does not have stands for itself."""
    compact = entity.replace(" ", "").rstrip(";") + ";"
    if compact[1] != "#" and compact[1:] not in html5:
        return entity
    return html.unescape(compact).replace("\xa0", " ")
