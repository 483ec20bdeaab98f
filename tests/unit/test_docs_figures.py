"""Every figure can be traced: its commit exists, its command composes, its machine is named."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.test_docs import FENCE, HEADING, PAGES, ROOT
from tests.unit.test_docs_commands import objection

RECORDS = sorted((ROOT / "benchmarks").rglob("*.jsonl"))
HASH = r"[0-9a-f]{7,40}"
NAMED = re.compile(rf"\bcommits?:? ((?:`?{HASH}\b`?\+?(?:, and |, | and )?)+)")
RULE = re.compile(r"^\|(?: *:?-+:? *\|)+$")
MEASURED = re.compile(r"\b(?:BLEU|chrF2|tokens/s|sentences/s|peak|time|minutes|hours|efficiency)\b")
MACHINE = re.compile(r"\b(?:EPYC|Xeon|H200)\b")
COMMAND = re.compile(r"\b(?:python|transformer) \S+|\(\.\./benchmarks/|\(benchmarks/")
ON_PAPER = re.compile(r"\*derived\*|\bassumed\b")


@dataclass(frozen=True)
class Table:
    """A table of a page.

    Attributes:
        columns: Its head.
        rows: Its cells.
        section: The text between the headings around it.
        nearby: The paragraph before it, and its own lines.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    section: str
    nearby: str

    def column(self, name: str) -> list[str]:
        """The cells of a column; none without such a column."""
        if name not in self.columns:
            return []
        place = self.columns.index(name)
        return [row[place] for row in self.rows if place < len(row)]

    @property
    def is_measured(self) -> bool:
        """A fifth of its cells, row names apart, are figures of something that is measured."""
        cells = [cell for row in self.rows for cell in row[1:]]
        figures = [cell for cell in cells if re.match(r"[*≈]*[-+]?\d[\d.,]*(?!\w)", cell)]
        names = " ".join([*self.columns, *(row[0] for row in self.rows)])
        return bool(MEASURED.search(names)) and len(figures) >= max(2, len(cells) / 5)


def tables(text: str) -> Iterator[Table]:
    """All tables of a page."""
    prose = FENCE.sub("", text)
    bounds = [0, *(match.start() for match in HEADING.finditer(prose)), len(prose)]
    for first, last in pairwise(bounds):
        section = prose[first:last]
        lines = section.splitlines()
        for number, line in enumerate(lines):
            if RULE.match(line):
                rows = []
                for row in lines[number + 1 :]:
                    if not row.startswith("|"):
                        break
                    rows.append(cells(row))
                end = number + 1 + len(rows)
                before = "\n".join(lines[: number - 1]).rstrip().rpartition("\n\n")[2]
                nearby = "\n".join([before, *lines[number - 1 : end]])
                yield Table(cells(lines[number - 1]), tuple(rows), section, nearby)


def cells(line: str) -> tuple[str, ...]:
    """Of a line of a table."""
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def commits(text: str) -> set[str]:
    """Those of the columns of this name, and those that prose calls so; without their "+"."""
    named = " ".join(match for match in NAMED.findall(text))
    columns = " ".join(cell for table in tables(text) for cell in table.column("commit"))
    return set(re.findall(HASH, f"{named} {columns}"))


@cache
def history() -> str:
    """The hashes of all commits, a line each.

    Skips the test in an unpacked archive and in a shallow clone, which have none.
    """
    shallow = git("rev-parse", "--is-shallow-repository").strip()
    if shallow != "false":
        pytest.skip("the history of commits is not here")
    return "\n" + git("rev-list", "HEAD")


def git(*arguments: str) -> str:
    """What git prints; nothing where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout


def unknown(hashes: set[str]) -> list[str]:
    """Those that are in no history."""
    return sorted(name for name in hashes if f"\n{name}" not in history())


def records(file: Path) -> list[dict[str, object]]:
    """Of a file of results."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commits_of_a_page_exist(page: Path) -> None:
    assert unknown(commits(page.read_text("utf-8"))) == []


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.name)
def test_the_commits_of_records_exist(file: Path) -> None:
    found = {name.rstrip("+") for record in records(file) for name in str(record["commit"]).split()}
    assert found
    assert unknown(found) == []


@pytest.mark.thorough
@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.name)
def test_the_commands_of_records_compose(file: Path) -> None:
    lines = {str(record["command"]) for record in records(file) if "command" in record}
    assert [text for text in map(objection, sorted(lines)) if text] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent in (ROOT, ROOT / "docs")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_measured_tables_name_command_commit_machine_and_seeds(page: Path) -> None:
    assert [fault for table in tables(page.read_text("utf-8")) for fault in lacking(table)] == []


def lacking(table: Table) -> list[str]:
    """What the section of a measured table does not say."""
    if not table.is_measured:
        return []
    section = table.section
    needed = {"command": COMMAND.search(section)}
    if not ON_PAPER.search(table.nearby):
        needed |= {"machine": MACHINE.search(section), "commit": commits(section)}
    if "BLEU" in " ".join(table.columns):
        needed["seeds"] = re.search(r"\bseeds?\b", section)
    return [f"{' | '.join(table.columns)}: no {name}" for name, said in needed.items() if not said]


def test_the_pages_have_commits_and_measured_tables() -> None:
    texts = [page.read_text("utf-8") for page in PAGES]
    assert len({name for text in texts for name in commits(text)}) > 30
    assert sum(table.is_measured for text in texts for table in tables(text)) > 50


FAULTY = """
## Speed

| | tokens/s | BLEU |
| --- | --- | --- |
| ours | 12,000 | 40.1 |
| theirs | 6,000 | 40.0 |
"""


def test_a_table_that_cannot_be_traced_is_found() -> None:
    [table] = tables(FAULTY)
    names = [fault.rpartition(" ")[2] for fault in lacking(table)]
    assert names == ["command", "machine", "commit", "seeds"]


def test_a_commit_that_does_not_exist_is_found() -> None:
    text = (
        "| a | commit |\n| --- | --- |\n| 1 | 0000000 1234567+ |\n\nat commits abcdef0 and abcdef1."
    )
    assert commits(text) == {"0000000", "1234567", "abcdef0", "abcdef1"}
    assert len(unknown(commits(text))) == 4
