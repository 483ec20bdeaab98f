"""A report as HTML by Jinja2, which escapes every value; no network.

It shows no other file but the sounds and pictures that its sentences come from, by link.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from transformer.common.escaping import escaped
from transformer.reports.page.figures import (
    LARGE,
    SMALL,
    Line,
    Number,
    Size,
    bar,
    distribution,
    line_chart,
)
from transformer.settings.metrics import METRICS

Values = dict[str, Any]

_CHARTS = (
    ("Loss", "nats per token", r"(train|val)/loss"),
    ("Quality on validation", "", r"val/(?!loss$|failures/).*"),
    ("Learning rate", "", "lr"),
    ("Speed", "tokens per second", "train/tokens_per_second"),
    ("Gradient norm", "before clipping", "train/grad_norm"),
)
"""Title, unit, and a pattern of the curves of each chart."""

_FAILURES = "val/failures/"
_COLORS = 6
"""Lines of a chart; more are drawn in another."""


def report_page(values: Values) -> str:
    """The page of one run or several, from the values of their ``report.json``."""
    alone = values["runs"][0] if len(values["runs"]) == 1 else None
    lengths = alone and (alone["lengths"] or {}).get("train")
    page = _environment().get_template("report.html")
    longest = max(map(len, lengths or ()), default=0)
    lines = [
        Line(name, distribution(counts, longest), color)
        for color, (name, counts) in enumerate(
            zip(("source", "target"), lengths or (), strict=False)
        )
    ]
    unit = "% of pairs with so many tokens"
    return page.render(
        **values,
        alone=alone,
        charts=_charts(values),
        flags=_flag_charts(values),
        lengths=_chart("Length of training sentences", unit, lines) if lines else None,
    )


def _charts(values: Values) -> list[Values]:
    """Charts of one run, each with all curves of a kind; of several, each with one curve of all."""
    runs = values["runs"]
    names = list(dict.fromkeys(name for run in runs for name in run["curves"]))
    drawn = []
    for title, unit, pattern in _CHARTS:
        matching = [name for name in names if re.fullmatch(pattern, name)]
        if len(runs) > 1:
            titles = [title if len(matching) == 1 else f"{title}, {name}" for name in matching]
            charts = [_lines(values, [name]) for name in matching]
        else:
            starts = range(0, len(matching), _COLORS)
            charts = [_lines(values, matching[start : start + _COLORS]) for start in starts]
            titles = [title if n == 1 else f"{title}, part {n}" for n in range(1, len(charts) + 1)]
        drawn += [
            _chart(chart_title, unit, lines, _best_update(values))
            for chart_title, lines in zip(titles, charts, strict=True)
        ]
    return drawn


def _flag_charts(values: Values) -> list[Values]:
    """A small chart for each flag that some output of a validation has; of one run with the
    references, which do not change."""
    curves = [run["curves"] for run in values["runs"]]
    names = dict.fromkeys(name for run in curves for name in run if name.startswith(_FAILURES))
    charts = []
    for name in names:
        points = [point for run in curves for point in run.get(name, ())]
        if name.endswith("_reference") or not any(value for _, value in points):
            continue
        lines = _lines(values, [name])
        references = curves[0].get(f"{name}_reference")
        if len(curves) == 1 and references:
            lines = [Line("outputs", lines[0].points), Line("references", references, 1)]
        flag = name.removeprefix(_FAILURES)
        charts.append(_chart(flag, "% of outputs", lines, _best_update(values), SMALL))
    return charts


def _lines(values: Values, names: Sequence[str]) -> list[Line]:
    """The curves of these names; of several runs, each by the letter of its run."""
    runs = values["runs"]
    if len(runs) == 1:
        return [Line(name, runs[0]["curves"][name], color) for color, name in enumerate(names)]
    pairs = enumerate(zip(values["letters"], runs, strict=True))
    return [
        Line(letter, run["curves"][name], number % _COLORS)
        for number, (letter, run) in pairs
        for name in names
        if name in run["curves"]
    ]


def _best_update(values: Values) -> Number | None:
    chosen = values["runs"][0]["validation"] if len(values["runs"]) == 1 else None
    return chosen and chosen["best_update"]


def _chart(
    title: str, unit: str, lines: Sequence[Line], mark: Number | None = None, size: Size = LARGE
) -> Values:
    label = f"{title}, {unit}: {', '.join(line.name for line in lines)}"
    figure = line_chart(label, lines, mark, size)
    return {"title": title, "unit": unit, "figure": figure, "lines": lines}


@cache
def _environment() -> Environment:
    folder = files("transformer.reports") / "assets"
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
