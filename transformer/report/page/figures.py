"""Figures of a report as inline SVG; the colours are classes of the style sheet."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

Point = tuple[float, float]

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 220, 50, 14, 10, 26
_MOST_POINTS = 240
"""Of a line; it has no more pixels."""


class Line(NamedTuple):
    """A line of a chart."""

    name: str
    points: Sequence[Point]
    """In the order of x."""
    color: int = 0
    """Number of the class."""


def line_chart(label: str, lines: Sequence[Line], mark: float | None = None) -> Markup:
    """A line chart with axes; ``mark`` is an x to point out. The label is for screen readers."""
    lines = [line._replace(points=_thinned(line.points)) for line in lines]
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    x_ticks, y_ticks = _ticks(min(xs), max(xs), 6), _ticks(min(ys), max(ys), 5)
    # The x axis ends with the data, the y axis with a tick.
    left, right = min(xs), max(max(xs), min(xs) + 1e-9)
    low, high = y_ticks[0], y_ticks[-1]

    def across(x: float) -> str:
        return f"{_LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def down(y: float) -> str:
        return f"{_TOP + (high - y) / (high - low) * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    parts = [_horizontal(down(y), _shown(y, y_ticks)) for y in y_ticks]
    base = _HEIGHT - _BOTTOM
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            across(x), base + 17, _shown(x, x_ticks)
        )
        for x in x_ticks
        if left <= x <= right
    ]
    if mark is not None:
        vertical = '<line class="mark" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
        parts.append(Markup(vertical).format(across(mark), _TOP, base))
    for line in lines:
        path = " ".join(f"{across(x)},{down(y)}" for x, y in line.points)
        parts.append(Markup('<polyline class="c{}" points="{}"/>').format(line.color, path))
        if len(line.points) < 2 or mark in [x for x, _ in line.points]:
            x, y = next((p for p in line.points if p[0] == mark), line.points[0])
            dot = '<circle class="c{}" cx="{}" cy="{}" r="3.2"/>'
            parts.append(Markup(dot).format(line.color, across(x), down(y)))
    data = [{"name": line.name, "color": line.color, "points": line.points} for line in lines]
    box = [_LEFT, _WIDTH - _RIGHT, left, right]
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" data-box="{}" '
        'data-lines="{}">{}</svg>'
    ).format(_WIDTH, _HEIGHT, label, json.dumps(box), _compact(data), Markup("").join(parts))


def bar(value: float, most: float, color: int = 0) -> Markup:
    """A horizontal bar in a cell of a table."""
    width = max(0.0, min(100.0, 100 * value / most)) if most > 0 else 0.0
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="c{}" width="{:.1f}" height="8"/></svg>'
    ).format(color, width)


def distribution(counts: Sequence[int], bins: int = 40) -> list[Point]:
    """Per cent of the pairs by length, from the number of pairs of each length; in equal bins."""
    last = max((length for length, count in enumerate(counts) if count), default=0)
    width, total = math.ceil((last + 1) / bins), sum(counts) or 1
    starts = range(0, last + width + 1, width)
    return [(a + (width - 1) / 2, 100 * sum(counts[a : a + width]) / total) for a in starts]


def _horizontal(y: str, label: str) -> Markup:
    line = '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
    text = '<text x="{}" y="{}" dy="4" text-anchor="end">{}</text>'
    return Markup(line + text).format(_LEFT, _WIDTH - _RIGHT, y, y, _LEFT - 6, y, label)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Means of neighbours, if there are more points than pixels."""
    size = math.ceil(len(points) / _MOST_POINTS)
    if size < 2:
        return [(x, float(f"{y:.5g}")) for x, y in points]
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [(group[-1][0], float(f"{sum(y for _, y in group) / len(group):.5g}")) for group in groups]


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers at equal steps around a range."""
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * n for n in (1, 2, 2.5, 5, 10, 20) if span / (power * n) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def _shown(value: float, ticks: Sequence[float]) -> str:
    """A number with as many decimals as the steps of its axis need."""
    step = ticks[1] - ticks[0]
    if max(map(abs, ticks)) < 1e-3:
        return f"{value:.2g}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    decimals += decimals > 0 and abs(step * 10**decimals % 1) > 1e-6
    return f"{value:,.{decimals}f}"


def _compact(values: object) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
