"""One self-contained HTML page of an attention view; its template is in ``assets``."""

import html
import json
from importlib.resources import files
from typing import Any

from transformer.common.escaping import escaped
from transformer.evaluation.attention_heads import AttentionKind, AttentionView

THOUSAND = 1000
"""The page has weights in whole thousandths; a hidden key has -1."""


def attention_page(view: AttentionView) -> str:
    """The page; sentences are never interpreted as HTML."""
    data = {
        "source": escaped(view.source),
        "target": escaped(view.target),
        "forced": view.forced,
        "checkpoint": escaped(view.checkpoint),
        "size": view.size,
        "measured": view.measured,
        "kinds": [_kind(kind) for kind in view.kinds],
    }
    parts = {
        "title": html.escape(f"Attention: {escaped(view.source)}"),
        "style": _asset("attention_page.css"),
        "data": _embedded(data),
        "script": _asset("attention_map.js") + _asset("attention_page.js"),
    }
    # The template is split before the data comes in, so that no sentence contains a field.
    split = _asset("attention_page.html").split("%%")
    return "".join(parts[text] if index % 2 else text for index, text in enumerate(split))


def _asset(name: str) -> str:
    return (files("transformer.reports") / "assets" / name).read_text(encoding="utf-8")


def _kind(kind: AttentionKind) -> dict[str, Any]:
    thousandths = (kind.weights.double() * THOUSAND).round().int()
    hidden = ~kind.visible.expand_as(thousandths)
    weights = thousandths.masked_fill(hidden, -1).flatten(2).flatten(0, 1).tolist()
    plain = kind.to_json()
    heads = [head | {"weights": w} for head, w in zip(plain["heads"], weights, strict=True)]
    count = kind.weights.size(1)
    return {
        "name": kind.name,
        "title": kind.title,
        "note": kind.note,
        "queryName": kind.query_name,
        "keyName": kind.key_name,
        "queries": list(map(escaped, kind.queries)),
        "keys": list(map(escaped, kind.keys)),
        "best": plain["best"],
        "layers": [heads[first : first + count] for first in range(0, len(heads), count)],
    }


def _embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
