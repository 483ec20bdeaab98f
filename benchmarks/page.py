"""A table that a benchmark keeps on a page, between two comments."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from transformer.data.cache import written_whole


@contextmanager
def alone(page: Path) -> Iterator[None]:
    """Let one process at a time read what a page is made of, and write it."""
    with FileLock(page.with_name(f".{page.name}.lock")):
        yield


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
