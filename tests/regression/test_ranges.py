"""The allowed values of every number of a run's config: a range that goes is noticed."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from transformer.common.schema import Range
from transformer.settings.run import RunConfig


def ranges_of(hint: Any) -> Iterator[Range]:
    if get_origin(hint) is Annotated:
        yield from (one for one in hint.__metadata__ if isinstance(one, Range))
    else:
        for part in get_args(hint):
            yield from ranges_of(part)


def ranges(config: type, prefix: str = "") -> Iterator[str]:
    hints = get_type_hints(config, include_extras=True)
    for field in fields(config):
        name, hint = prefix + field.name, hints[field.name]
        if is_dataclass(hint):
            yield from ranges(hint, f"{name}.")
        else:
            yield from (f"{name} {one}" for one in ranges_of(hint))


def test_every_range_is_as_it_was() -> None:
    known = Path(__file__).with_name("ranges.txt").read_text(encoding="utf-8").splitlines()
    assert list(ranges(RunConfig)) == known
