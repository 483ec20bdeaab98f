"""A table that a benchmark keeps on a page, between two comments."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from filelock import FileLock

from benchmarks.support.records import Record, Records
from transformer.common.files import written_whole


def publish(
    page: Path,
    name: str,
    records: Records[Record],
    found: Iterable[Record],
    table: Callable[[list[Record]], list[str]],
) -> list[str]:
    """Record what was found, and write the table of all that is recorded, which is returned.

    One process at a time does so for a page.
    """
    with FileLock(page.with_name(f".{page.name}.lock")):
        for one in found:
            records.keep(one)
        lines = table(records.read())
        write_between(page, name, lines)
    return lines


def write_between(page: Path, name: str, lines: Sequence[str]) -> None:
    """Put the lines between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.

    Raises:
        SystemExit: The page does not hold each of them once.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{page} must hold {begin} and {end}, each once")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    table = "\n".join(lines)
    with written_whole(page) as part:
        part.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
