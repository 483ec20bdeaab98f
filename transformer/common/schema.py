"""Checks values against the annotations of a dataclass, and numbers against ranges."""

import keyword
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from transformer.common.errors import InputError, did_you_mean, raise_objections
from transformer.common.escaping import escaped
from transformer.common.files import given_path

T = TypeVar("T")


def typed(kind: type[T], values: Any, where: str) -> T:
    """Build a dataclass from plain values; InputError for a wrong key, type or `Range`.

    ``where`` is the key of the whole in messages, such as ``optimizer``; "" if it has none.
    """
    if not isinstance(values, Mapping):
        return typed_value(values, kind, where)  # which raises
    prefix, of_where = (f"{where}.", f" of {where}") if where else ("", "")
    settings = {field_key(field.name): field for field in fields(kind)}  # type: ignore[arg-type]
    raise_objections(
        f"{prefix}{escaped(unknown)} is not a setting{of_where}{did_you_mean(unknown, settings)}"
        for unknown in sorted(map(str, values.keys() - settings))
    )
    raise_objections(
        f"{prefix}{key} is missing"
        for key, field in settings.items()
        if key not in values and field.default is field.default_factory is MISSING
    )
    return kind(**_checked(kind, {settings[key].name: v for key, v in values.items()}, where))


def _checked(kind: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of fields, each in the type of its field; all objections as one InputError."""
    hints = _hints(kind)
    checked = {}
    wrong = []
    for name, value in values.items():
        try:
            key = f"{where}.{field_key(name)}".removeprefix(".")
            checked[name] = typed_value(value, hints[name], key)
        except InputError as error:
            wrong.append(str(error))
    raise_objections(wrong)
    return checked


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


class Settings:
    """Base of dataclasses of settings: a program's values are checked as those of a command.

    A text becomes a `Path` and a list a tuple, where the field is one. Raises InputError for a
    wrong type, a number outside of its `Range`, or what ``_objections`` of a class yields.
    ``group`` begins the keys in these messages.
    """

    _group: ClassVar[str] = ""

    def __init_subclass__(cls, group: str | None = None) -> None:
        if group is not None:
            cls._group = group

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        for name, value in _checked(type(self), values, self._group).items():
            object.__setattr__(self, name, value)  # frozen, and not yet seen by anyone
        raise_objections(self._objections())

    def _objections(self) -> Iterator[str]:
        """Yield each contradiction; types and ranges are right."""
        yield from ()


# A name of a file such as 2014 is a number to YAML; a checkpoint may be a name or a path.
_READ_FROM: dict[Any, tuple[type, ...]] = {
    float: (int, float),
    Path: (str, Path, int, float),
    str: (str, Path),
}


def field_key(name: str) -> str:
    """The key of a field: ``from`` of ``from_``, as a keyword of Python names no field."""
    key = name.removesuffix("_")
    return key if keyword.iskeyword(key) else name


def typed_value(value: Any, hint: Any, where: str) -> Any:
    """The value in the type of its annotation; raises InputError if it has another type, or is a
    number outside of its `Range`."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _in_range(typed_value(value, hint.__origin__, where), hint, where)
    if origin in (types.UnionType, typing.Union):
        return _typed_option(value, hint, where)
    if isinstance(value, Mapping) and (origin is Mapping or is_dataclass(hint)):
        return _mapped(value, hint, where)
    elif isinstance(value, list | tuple) and (items := _item_hints(hint, len(value))) is not None:
        return tuple(typed_value(v, i, where) for v, i in zip(value, items, strict=True))
    elif origin is Literal and value in get_args(hint):
        return value
    elif isinstance(value, _READ_FROM.get(hint, ())) and not isinstance(value, bool):
        return given_path(str(value)) if hint is Path else hint(value)
    elif hint is Any or (isinstance(hint, type) and type(value) is hint):
        return value
    raise _wrong_type(value, hint, where)


def _typed_option(value: Any, hint: Any, where: str) -> Any:
    """The value in the first type of a union that it has."""
    for option in get_args(hint):
        try:
            return typed_value(value, option, where)
        except OutOfRange:
            raise
        except InputError:
            mapping = get_origin(option) is Mapping or is_dataclass(option)
            if isinstance(value, Mapping) and mapping:
                raise  # an error inside the mapping is the more precise message
    raise _wrong_type(value, hint, where)


def _wrong_type(value: Any, hint: Any, where: str) -> InputError:
    shown = "null" if value is None else repr(value)[:200]
    return InputError(f"{where}={shown} must be {_words(hint)}")


def _mapped(value: Mapping[str, Any], hint: Any, where: str) -> Any:
    if get_origin(hint) is not Mapping:
        return typed(hint, value, where)
    kind = get_args(hint)[1]
    return {str(key): typed_value(v, kind, f"{where}.{key}") for key, v in value.items()}


def _item_hints(hint: Any, length: int) -> tuple[Any, ...] | None:
    """The annotation of each item of a list; None if it may not have this length."""
    if get_origin(hint) not in (tuple, Sequence):
        return None
    items = get_args(hint)
    if get_origin(hint) is Sequence or items[-1] is ...:
        return items[:1] * length
    return items if len(items) == length else None


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin is Annotated:
        return _words(hint.__origin__)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(option) for option in get_args(hint))
    if origin is Literal:
        return " or ".join(str(option) for option in get_args(hint))
    if origin is tuple and get_args(hint)[-1] is not ...:
        return f"a list of {len(get_args(hint))}"
    if origin in (tuple, Sequence):
        return "a list"
    if origin is Mapping or is_dataclass(hint):
        return "a mapping, {KEY: VALUE}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    names[Path] = "a path"
    return names.get(hint, "null" if hint is type(None) else str(hint))


class Range(NamedTuple):
    """Allowed values of a number: ``Annotated[float, Range(0, below=1)]`` is 0 <= x < 1."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, value: float | int) -> bool:
        """Whether the value is in the range; NaN never is."""
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"from {self.least:.10g} to {self.most:.10g}"
        bounds = {"at least": self.least, "above": self.above}
        bounds |= {"at most": self.most, "below": self.below}
        return " and ".join(f"{name} {n:.10g}" for name, n in bounds.items() if math.isfinite(n))


class OutOfRange(InputError):
    """A number has the right type, and is outside of its range."""


def _in_range(value: Any, hint: Any, where: str) -> Any:
    for allowed in hint.__metadata__:
        if isinstance(allowed, Range) and not allowed.holds(value):
            raise OutOfRange(f"{where}={value} must be {allowed}")
    return value


def override_key(argument: str) -> str:
    """The key of an argument."""
    return argument.partition("=")[0]


def different_fields(before: T, now: T) -> list[str]:
    """The names of the fields of two configs of one class that differ."""
    names = [field.name for field in fields(now)]  # type: ignore[arg-type]
    return [name for name in names if getattr(before, name) != getattr(now, name)]
