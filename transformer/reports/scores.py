"""The report of an evaluation: JSON for programs, a table for people."""

import json
import sys
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from transformer.checkpoint.run_directory import OUTDATED
from transformer.common.escaping import escaped
from transformer.common.files import read_json, write_text_whole
from transformer.evaluation.metrics import Score

if TYPE_CHECKING:
    from transformer.quality.failures.monitor import Failures

_SHOWN_LINES = 5


def format_json(scores: Sequence[Score]) -> str:
    """Write scores as sacreBLEU does: a list of one object a metric, without a last line end."""
    objects = [json.dumps(score.to_json(), indent=1, ensure_ascii=False) for score in scores]
    return "[\n" + ",\n".join(objects) + "\n]"


def print_json(text: str) -> None:
    """Print JSON for programs: a terminal shows the table alone."""
    if not sys.stdout.isatty():
        print(text)


def table_console() -> Console:
    """Stderr for tables of any width: a terminal wraps them, rich would cut them."""
    return Console(stderr=True, width=10_000, soft_wrap=True)


def shown(text: str) -> Text:
    """A line for a console, without rich's markup."""
    return Text(escaped(text))


def build_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Container[int]
) -> Text:
    """A table of any texts, without blanks at line ends; ``right`` are the columns of numbers."""
    columns = [list(map(shown, column)) for column in zip(header, *rows, strict=True)]
    for number, column in enumerate(columns):
        width = max(cell.cell_len for cell in column)
        for cell in column:
            cell.align("right" if number in right else "left", width)
    lines = [Text("  ").join(row) for row in zip(*columns, strict=True)]
    for line in lines:
        line.rstrip()
    lines[0].stylize("table.header")
    return Text("\n").join([Text(escaped(title), "table.title"), *lines])


def scores_table(title: str, scores: Sequence[Score]) -> Text:
    """Scores and signatures."""
    rows = [(score.name, f"{score.value:.{score.decimals}f}", score.signature) for score in scores]
    return build_table(title, ("metric", "score", "signature"), rows, right=(1,))


def print_table(title: str, scores: Sequence[Score]) -> None:
    """Show scores and signatures to people, on stderr."""
    table_console().print(scores_table(title, scores))


def failures_table(failures: "Failures") -> Text:
    """The flags that hypotheses or references have, with the first lines of each."""
    rows = []
    for flag in failures.names:
        lines = failures.lines(flag)
        count = failures.reference_count(flag)
        if lines or count:
            first = " ".join(str(index + 1) for index in lines[:_SHOWN_LINES])
            rows.append((flag, str(len(lines)), "-" if count is None else str(count), first))
    total = failures.sentences
    if not rows:
        return shown(f"failures: none of {total} outputs has a flag")
    header = ("flag", "outputs", "references", "first lines")
    title = f"failures of {total} outputs (docs/failures.md explains the flags)"
    return build_table(title, header, rows, right=(1, 2))


def failures_file(split: str) -> str:
    """The name of the file of flags: that of ``test`` has no prefix."""
    return "failures.json" if split == "test" else f"{split}.failures.json"


def save_report(
    folder: Path,
    split: str,
    scores: Sequence[Score],
    hypotheses: Sequence[str] | None,
    failures: "Failures | None" = None,
) -> None:
    """Write ``SPLIT.json``, hypotheses to ``SPLIT.hyp``, and failures, each whole."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text_whole(folder / f"{split}.json", format_json(scores) + "\n")
    if hypotheses is not None:
        write_text_whole(folder / f"{split}.hyp", "".join(line + "\n" for line in hypotheses))
    if failures is not None:
        write_text_whole(folder / failures_file(split), json.dumps(failures.to_json()) + "\n")


def read_scores(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The scores of each text that ``save_report`` has written to a folder, the test first."""
    keys = {"name", "score", "signature"}
    by_text = {}
    files = (file for file in folder.glob("*.json") if not file.name.startswith(f"{OUTDATED}-"))
    for file in sorted(files, key=lambda f: (f.stem != "test", "test" not in f.stem, f.stem)):
        scores = read_json(file)
        plain = isinstance(scores, list) and all(isinstance(score, dict) for score in scores)
        if plain and scores and all(keys <= score.keys() for score in scores):
            by_text[file.stem] = scores
    return by_text
