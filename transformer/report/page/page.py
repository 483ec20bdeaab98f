"""A report as HTML by Jinja2, which escapes every value; no network, no other file."""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from transformer.common.escaping import escaped
from transformer.evaluation.metrics import METRICS
from transformer.report.page.figures import Line, Number, bar, distribution, line_chart

Values = dict[str, Any]

_CHARTS = (
    ("Loss", "nats per token", r"(train|val)/loss"),
    ("Quality on validation", "", r"val/(?!loss$|failures/).*"),
    ("Failures on validation", "% of outputs", r"val/failures/.*"),
    ("Learning rate", "", "lr"),
    ("Speed", "tokens per second", "train/tokens_per_second"),
    ("Gradient norm", "before clipping", "train/grad_norm"),
)
"""Title, unit, and a pattern of the curves of each chart."""

_COLORS = 6
"""Lines of a chart; more are drawn in another."""


def report_page(values: Values) -> str:
    """The page of one run or several, from the values of their ``report.json``."""
    alone = values["runs"][0] if len(values["runs"]) == 1 else None
    lengths = alone and (alone["lengths"] or {}).get("train")
    page = _environment().get_template("report.html")
    lines = [
        Line(n, distribution(c)) for n, c in zip(("source", "target"), lengths or (), strict=False)
    ]
    unit = "% of pairs, by tokens"
    return page.render(
        **values,
        alone=alone,
        charts=_charts(values),
        lengths=_chart("Length of training sentences", unit, lines) if lines else None,
    )


def _charts(values: Values) -> list[Values]:
    runs, found = values["runs"], []
    chosen = runs[0]["validation"] if len(runs) == 1 else None
    for title, unit, pattern in _CHARTS:
        lines = [
            Line(name if len(runs) == 1 else f"{letter} {name}", points)
            for letter, run in zip(values["letters"], runs, strict=True)
            for name, points in run["curves"].items()
            if re.fullmatch(pattern, name)
        ]
        found += [
            _chart(title, unit, lines[at : at + _COLORS], chosen and chosen["best_update"])
            for at in range(0, len(lines), _COLORS)
        ]
    return found


def _chart(title: str, unit: str, lines: Sequence[Line], mark: Number | None = None) -> Values:
    label = f"{title}, {unit}: {', '.join(line.name for line in lines)}"
    figure = line_chart(label, lines, mark)
    return {"title": title, "unit": unit, "figure": figure, "lines": lines}


@cache
def _environment() -> Environment:
    folder = files("transformer.report") / "assets"
    names = ("report.html", "report.css", "report.js")
    page, style, script = ((folder / name).read_text(encoding="utf-8") for name in names)
    environment = Environment(
        loader=DictLoader({"report.html": page}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"style": Markup(style), "script": Markup(script), "bar": bar}
    environment.filters |= {"fixed": _fixed, "shown": _shown, "mean": _mean, "visible": escaped}
    environment.filters["label"] = lambda name: METRICS[name].label
    return environment


def _fixed(value: Number | None, decimals: int = 2) -> str:
    """A number for a table, with a real minus sign."""
    return "" if value is None else f"{value:,.{decimals}f}".replace("-", "−")


def _shown(value: object) -> str:
    """A setting as YAML has it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else escaped(str(value))


def _mean(counts: Sequence[int]) -> float:
    return sum(length * count for length, count in enumerate(counts)) / max(sum(counts), 1)
