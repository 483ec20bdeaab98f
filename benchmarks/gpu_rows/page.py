"""The tables of docs/gpu.md, from the lines of the rows."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.gpu_rows.registry import ROWS, TABLES
from benchmarks.results.page import markdown

UNMEASURED = "not measured yet"


def tables(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """A table of each kind of row, in the order of the registry, and why others have no numbers."""
    found = {(line["table"], line["row"]): line for line in lines}
    shown_lines: list[str] = []
    missing = []
    for name in TABLES:
        rows = []
        for row in (row for row in ROWS if row.table == name):
            line = found.get((name, row.name), {"why": UNMEASURED})
            if "why" in line:
                missing.append([name, row.name, cell(line["why"])])
            else:
                rows.append({name: row.name, **line["values"]})
        shown_lines += [*table(rows), ""] if rows else []
    columns = ["table", "row", "no numbers"]
    return [*shown_lines, *(markdown(columns, missing) if missing else ())]


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns are the keys of all rows; a single row stands upright."""
    if len(rows) == 1:
        (name, first), *others = rows[0].items()
        return markdown([name, cell(first)], [[key, cell(value)] for key, value in others])
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return markdown(columns, [[cell(row.get(column, "")) for column in columns] for row in rows])


def cell(value: Any) -> str:
    """Fractions have three digits, or none behind the point."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
