"""Which arguments of a call are for the recipe, all trainings, or the stages of one kind.

It does not know what they mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from transformer.common.errors import InputError, did_you_mean
from transformer.recipes.overrides import key_of, override

_NAMES = ("output", "monolingual", "reverse")
"""Keys of recipes whose value is the name of a file, whatever is in it."""


@dataclass(frozen=True)
class Given:
    """The arguments of a call, sorted out.

    Attributes:
        own: Of the recipe itself.
        base: Of all trainings.
        extras: Of the stages of one kind.
    """

    own: list[str] = field(default_factory=list)
    base: list[str] = field(default_factory=list)
    extras: dict[str, tuple[str, ...]] = field(default_factory=dict)


def sorted_out(
    arguments: Sequence[str], own: set[str], training: set[str], kinds: Sequence[str]
) -> Given:
    """Tell the arguments of the recipe from those of the trainings, and of stages of one kind.

    Args:
        arguments: ``KEY=VALUE``, or ``KIND.KEY=VALUE``.
        own: The keys of the recipe.
        training: Those of a training, without what comes after the first dot, and its groups.
        kinds: Of the stages.

    Raises:
        InputError: One is of none of these.
    """
    given = Given(extras=dict.fromkeys(kinds, ()))
    for argument in arguments:
        key = key_of(argument)
        head, dot, _ = key.partition(".")
        if "=" not in argument:
            raise InputError(f"{argument!r} is not of the form KEY=VALUE")
        if key in own:
            given.own.append(_as_name(argument) if key in _NAMES else argument)
        elif dot and head in kinds:
            given.extras[head] += (argument.removeprefix(f"{head}."),)
        elif head in training - own or key.startswith(("hydra.", "+", "~")):
            given.base.append(argument)
        else:
            known = sorted({*own, *training, *kinds})
            raise InputError(f"unknown key {key}{did_you_mean(head, known, cutoff=0.5)}")
    return given


def _as_name(argument: str) -> str:
    """The argument with its value quoted; spaces and commas are letters of a name."""
    key, _, value = argument.partition("=")
    if value == "null" or value[:1] in ("'", '"'):
        return argument
    return override(key, value)
