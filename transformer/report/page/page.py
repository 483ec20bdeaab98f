"""Report and comparison as HTML by Jinja2, which escapes every value; no network, no other file."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from transformer.common.escaping import escaped
from transformer.report.page.figures import Line, Point, bar, distribution, line_chart

Values = dict[str, Any]
Curves = Mapping[str, Sequence[Point]]

_CHARTS = (
    ("Loss", "nats per token", ("train/loss", "val/loss")),
    ("Quality on validation", "", ()),
    ("Learning rate", "", ("lr",)),
    ("Speed", "tokens per second", ("train/tokens_per_second",)),
    ("Gradient norm", "before clipping", ("train/grad_norm",)),
)
"""Title, unit and curves of each chart; none are all of validation but the loss."""

_MOST_LINES = 6
"""Of a chart: there are so many colours."""


def report_page(values: Values) -> str:
    """The page of one run, from the values of ``report.json``."""
    validation = values["validation"]
    mark = validation["best_update"] if validation else None
    lengths = (values["data"]["lengths"] or {}).get("train")
    return _render(
        "report_run.html",
        **values,
        charts=charts({"": values["curves"]}, [mark]),
        lengths=lengths and _length_chart(*lengths),
    )


def comparison_page(values: Values) -> str:
    """The page of several runs, from the values of their ``comparison.json``."""
    runs = {letter: run["curves"] for letter, run in zip(values["letters"], values["runs"], strict=True)}
    return _render("report_comparison.html", **values, charts=charts(runs, [None]))


def charts(runs: Mapping[str, Curves], marks: Sequence[float | None]) -> list[Values]:
    """A chart of each kind of curve that the runs have; each run has its colours and its mark."""
    found = []
    for title, unit, names in _CHARTS:
        lines: list[Line] = []
        for run, curves in runs.items():
            own = names or [one for one in curves if one.startswith("val/") and one != "val/loss"]
            for name in own:
                if points := curves.get(name):
                    lines.append(Line(f"{run} {name}".strip(), points, len(lines)))
        if lines := lines[:_MOST_LINES]:
            label = f"{title} by update: {', '.join(line.name for line in lines)}"
            figure = line_chart(label, lines, marks[0])
            found.append({"title": title, "unit": unit, "figure": figure, "lines": lines})
    return found


def _length_chart(source: Sequence[int], target: Sequence[int]) -> Values:
    lines = [Line("source", distribution(source), 0), Line("target", distribution(target), 1)]
    figure = line_chart("Per cent of the training pairs by number of tokens", lines)
    return {"title": "Length of training sentences", "unit": "% of pairs, by tokens"} | {
        "figure": figure,
        "lines": lines,
    }


@cache
def _environment() -> Environment:
    folder = files("transformer.report") / "assets"
    assets = {
        file.name: file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.startswith("report")
    }
    templates = DictLoader({name: text for name, text in assets.items() if name.endswith(".html")})
    environment = Environment(
        loader=templates,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "style": Markup(assets["report.css"]),
        "script": Markup(assets["report.js"]),
        "bar": bar,
        "mean_length": _mean_length,
    }
    environment.filters |= {"fixed": _fixed, "shown": _shown, "visible": escaped}
    return environment


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def _mean_length(counts: Sequence[int]) -> float:
    """Mean of lengths, from the number of pairs of each length."""
    return sum(length * count for length, count in enumerate(counts)) / max(sum(counts), 1)


def _fixed(value: float | None, decimals: int = 2) -> str:
    """A number for a table, with a real minus sign."""
    return "" if value is None else f"{value:,.{decimals}f}".replace("-", "−")


def _shown(value: Any) -> str:
    """A setting as YAML has it."""
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else escaped(str(value))
