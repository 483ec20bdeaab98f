"""The parameters of DeepL for HTML and XML: ``tag_handling`` and what belongs to it."""

from collections.abc import Mapping
from typing import Any

from transformer.serving.formats.blocks import KEPT, Rules
from transformer.serving.interfaces.http import Refusal

_FALSE = ("0", "false")
_MOST_NAMES = 100


def tag_rules(asked: Mapping[str, Any]) -> Rules | None:
    """What is done with tags; None for plain text.

    ``tag_handling_version`` changes nothing. XML need not be well-formed. Raises Refusal if
    ``tag_handling`` is neither html nor xml, or too many tags are named.
    """
    kind = asked.get("tag_handling")
    if not kind:
        return None
    if kind not in ("html", "xml"):
        raise Refusal(400, "tag_handling must be html or xml")
    kept = _names(asked, "ignore_tags")
    if kind == "html":
        return Rules(kept=KEPT | {name.lower() for name in kept})
    return Rules(
        xml=True,
        kept=kept,
        splitting=_names(asked, "splitting_tags"),
        outline=str(asked.get("outline_detection", "1")).lower() not in _FALSE,
        inline=_names(asked, "non_splitting_tags"),
    )


def _names(asked: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """Names of elements: a list, or names with commas between them."""
    given = asked.get(parameter)
    parts = given if isinstance(given, list) else [given or ""]
    names = frozenset(name.strip() for part in parts for name in str(part).split(",")) - {""}
    if len(names) > _MOST_NAMES:
        raise Refusal(400, f"{parameter} may have {_MOST_NAMES} names, not {len(names)}")
    return names
