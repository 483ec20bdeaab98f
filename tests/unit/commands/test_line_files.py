"""Which process translates which lines, and what is left of them on the disk."""

from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

from transformer.commands.line_files import BLOCK, LineAssignment, PartFiles, open_part
from transformer.common.errors import InputError


def owned(rank: int, world: int, count: int) -> list[int]:
    """The numbers of the lines of one process, from 1, by the formula."""
    return [n + 1 for n in range(count) if (n // BLOCK) % world == rank]


def translate(parts: PartFiles, lines: list[str], stop: int | None = None) -> int:
    """Write in capitals the first ``stop`` lines that are left; return how many were done."""
    with ExitStack() as stack:
        file, done = open_part(parts.path(parts.assignment.rank), stack)
        for line in list(islice(parts.assignment.lines(lines), done, None))[:stop]:
            file.write(line.upper().encode() + b"\n")
    return done


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, BLOCK, 7 * BLOCK + 5])
def test_the_joined_output_is_in_the_order_of_the_input(
    world: int, count: int, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(1, count + 1)]
    output = tmp_path / "out"
    # Rank 0 joins, last of all.
    for rank in reversed(range(world)):
        assignment = LineAssignment(rank, world)
        numbers = owned(rank, world, count)
        assert list(assignment.lines(iter(lines))) == [f"line {number}" for number in numbers]
        assert [assignment.number(index) for index in range(len(numbers))] == numbers
        parts = PartFiles(output, assignment, "job")
        assert not parts.is_done
        assert translate(parts, lines) == 0
        parts.finish()
        assert parts.is_done
    assert not output.exists()
    parts.join()
    assert output.read_text() == "".join(f"{line.upper()}\n" for line in lines)
    assert list(tmp_path.iterdir()) == [output]


def test_a_process_resumes_without_the_line_that_was_cut(tmp_path: Path) -> None:
    parts = PartFiles(tmp_path / "out", LineAssignment(), "job")
    parts.path(0).write_bytes(b"LI")
    assert translate(parts, ["line"]) == 0
    assert parts.path(0).read_bytes() == b"LINE\n"
    parts.path(0).unlink()
    lines = [f"line {number}" for number in range(4 * BLOCK)]
    parts = PartFiles(tmp_path / "out", LineAssignment(1, 2), "job")
    assert translate(parts, lines, stop=BLOCK + 2) == 0
    with parts.path(1).open("ab") as file:
        file.write(b"LINE 1")
    assert translate(parts, lines) == BLOCK + 2
    expected = [f"LINE {number - 1}" for number in owned(1, 2, 4 * BLOCK)]
    assert parts.path(1).read_text().splitlines() == expected


def test_two_processes_cannot_write_one_part(tmp_path: Path) -> None:
    parts = PartFiles(tmp_path / "out", LineAssignment(), "job")
    with ExitStack() as stack:
        open_part(parts.path(0), stack)
        with pytest.raises(InputError, match=r"\.part is being written by another process"):
            translate(parts, ["line"])
    assert translate(parts, ["line"]) == 0


def test_an_error_names_the_part_with_the_lines_before_it(tmp_path: Path) -> None:
    parts = PartFiles(tmp_path / "out", LineAssignment(), "job")
    with pytest.raises(InputError, match=r"^line 1 is bad$"), parts.naming_part():
        with ExitStack() as stack:
            open_part(parts.path(0), stack)
        raise InputError("line 1 is bad")
    assert list(tmp_path.iterdir()) == []
    translate(parts, ["line"])
    with (
        pytest.raises(InputError, match=r"line 2 is bad; the output of the lines before.*\.part"),
        parts.naming_part(),
    ):
        raise InputError("line 2 is bad")
    assert parts.path(0).read_bytes() == b"LINE\n"


def test_the_assignment_is_that_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert LineAssignment.from_environment() == LineAssignment(0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert LineAssignment.from_environment() == LineAssignment(2, 3)
