"""Files of lines, and the line of a result: what ``translate`` and ``predict`` share."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from transformer.common.errors import InputError
from transformer.common.files import check_output_path, given_path
from transformer.data.text.lines import read_lines
from transformer.settings.translator import Form

if TYPE_CHECKING:
    from transformer.decoding.prediction import Prediction


Line = TypeVar("Line")


def format_line(result: "Prediction", form: Form) -> str:
    """The line of a result, such as a `Translation`, without its end: plain text, or JSON."""
    if form == "json":
        return json.dumps(result.to_json(), ensure_ascii=False)
    return result.to_line()


def given_lines(lines: Iterable[Line] | None, file: str | Path | None) -> Iterable[Line | str]:
    """The lines of a program or, for None, those of a file."""
    if isinstance(lines, str):
        raise TypeError("lines are several texts, not one string; give [text]")
    if lines is not None:
        return lines
    if file is None:
        raise InputError("there is nothing to read; give lines, or input=FILE")
    return read_lines(given_path(file))


def regular_files(source: str | Path | None, target: str | Path | None) -> tuple[Path, Path] | None:
    """The two files that are read and written; None if one is missing or a stream.

    A stream is, for example, a named pipe. Raises InputError for an output that cannot be a file.
    """
    if source is None or target is None:
        return None
    source, target = given_path(source), given_path(target)
    if _is_special(source) or _is_special(target):
        return None
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"output={target} is a folder, or in none; give a file in a folder")
    check_output_path(target, [source])
    # A link stays one: the file that it names is replaced.
    return source, target.resolve()


def required_files(source: str | Path | None, target: str | Path | None) -> tuple[Path, Path]:
    """`regular_files`; InputError if they are not two."""
    files = regular_files(source, target)
    if files is None:
        raise InputError(f"input={source} and output={target} must be two files")
    return files


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()
