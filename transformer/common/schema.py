"""Plain values as the annotations of a dataclass want them.

It does not know what the values mean, and imports nothing heavy.
"""

import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from transformer.common.errors import InputError, did_you_mean, raise_objections

T = TypeVar("T")


def typed(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """Build a dataclass from plain values.

    Raises:
        InputError: A key is missing or unknown, or a value has the wrong type.
    """
    if not isinstance(values, Mapping):
        raise InputError(f"{where}={str(values)[:80]!r} must be a mapping, {{KEY: VALUE}}")
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    raise_objections(
        f"{where}.{unknown} is not a setting of {where}{did_you_mean(unknown, names)}"
        for unknown in sorted(map(str, values.keys() - names))
    )
    raise_objections(
        f"{where}.{field.name} is missing"
        for field in fields(kind)  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in values
    )
    right, wrong = {}, []
    for name, value in values.items():
        try:
            right[name] = typed_value(value, hints[name], f"{where}.{name}")
        except InputError as error:
            wrong.append(str(error))
    raise_objections(wrong)
    return kind(**right)


def typed_value(value: Any, hint: Any, where: str) -> Any:
    """The value as its annotation says.

    An annotation is int, float, bool, str, None, a literal, a tuple, a sequence, a mapping from
    str, a dataclass, or a union.

    Raises:
        InputError: The value has another type.
    """
    origin = get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        for option in get_args(hint):
            try:
                return typed_value(value, option, where)
            except InputError:
                if isinstance(value, Mapping) and get_origin(option) is Mapping:
                    # What is wrong inside it says more than that it is none of the options.
                    raise
    elif isinstance(value, Mapping) and (origin is Mapping or is_dataclass(hint)):
        return _mapped(value, hint, where)
    elif origin in (tuple, Sequence) and isinstance(value, list | tuple):
        return _items(value, hint, where)
    elif origin is Literal and value in get_args(hint):
        return value
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise _refusal(value, hint, where)


def _mapped(value: Mapping[str, Any], hint: Any, where: str) -> Any:
    if get_origin(hint) is not Mapping:
        return typed(hint, value, where)
    kind = get_args(hint)[1]
    return {str(key): typed_value(one, kind, f"{where}.{key}") for key, one in value.items()}


def _items(value: Sequence[Any], hint: Any, where: str) -> tuple[Any, ...]:
    items = get_args(hint)
    if get_origin(hint) is Sequence or items[-1] is ...:
        items = items[:1] * len(value)
    if len(items) != len(value):
        raise _refusal(value, hint, where)
    return tuple(typed_value(v, i, where) for v, i in zip(value, items, strict=True))


def _refusal(value: Any, hint: Any, where: str) -> InputError:
    said = "null" if value is None else repr(value)[:200]
    return InputError(f"{where}={said} must be {_words(hint)}")


def _words(hint: Any) -> str:
    """How to say an annotation to the user."""
    origin = get_origin(hint)
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
    return names.get(hint, "null" if hint is type(None) else str(hint))


class Range(NamedTuple):
    """The values that a number may have, as a note of its annotation.

    ``Annotated[float, Range(0, below=1)]`` is from 0 to less than 1.
    """

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, value: float | int) -> bool:
        """Whether the value is in the range; NaN never is."""
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"from {self.least:g} to {self.most:g}"
        bounds = {"at least": self.least, "above": self.above}
        bounds |= {"at most": self.most, "below": self.below}
        return " and ".join(f"{name} {n:g}" for name, n in bounds.items() if math.isfinite(n))


def out_of_range(config: Any, where: str) -> Iterator[str]:
    """Objections to the numbers of a dataclass that are outside of their `Range`.

    Args:
        config: A dataclass; a range stands in ``Annotated``, also inside a union with None.
        where: The name of its group, for the message.
    """
    for name, hint in get_type_hints(type(config), include_extras=True).items():
        options = get_args(hint) if get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
        ranges = [n for o in options for n in getattr(o, "__metadata__", ()) if type(n) is Range]
        value: Any = getattr(config, name, None)
        for allowed in ranges if isinstance(value, int | float) else ():
            if not allowed.holds(value):
                yield f"{where}.{name}={value} must be {allowed}".removeprefix(".")
