"""What a user asks of one translation: how it begins, what it must say and what it never may.

It knows text only: neither pieces nor the search that obeys.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformer.common.errors import InputError, raise_objections
from transformer.data.text.phrases import occurs, one_line
from transformer.data.tokenization.tags import SourceTags, with_tags


@dataclass(frozen=True)
class Constraints:
    """Constraints of one translation, case-sensitive; without any, the search is free.

    Attributes:
        prefix: The translation begins with this text. It may end inside a word, which then goes on
            in any way; a space at its end ends the word.
        must: Phrases that occur in the translation, between the edges of words (``occurs``).
        never: Phrases that do not occur in it: ``der`` does not rule out "wieder".

    Raises:
        InputError: A phrase is empty, or one constraint contradicts another.
    """

    prefix: str = ""
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        raise_objections(_objections(self))

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.prefix.strip() or self.must or self.never)

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str) -> "Constraints":
        """Read ``{"prefix": "…", "must": ["…"], "never": ["…"]}``, where any may be missing.

        Args:
            values: The object.
            where: ``FILE:LINE``, which begins an error.

        Raises:
            InputError: A key is unknown, a value of another type, or as above.
        """
        for key in values:
            if key not in cls.__dataclass_fields__:
                raise InputError(
                    f"{where}: unknown key {key!r}; choose text, to, tag, prefix, must or never"
                )
        prefix = values.get("prefix", "")
        if not isinstance(prefix, str):
            raise InputError(f'{where}: "prefix" must be a string, not {prefix!r}')
        phrases = {key: _phrases(values.get(key, []), key, where) for key in ("must", "never")}
        try:
            return cls(prefix, **phrases)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    def unmet(self, text: str) -> tuple[str, ...]:
        """What this translation does not keep to, such as ``must: Haus``."""
        # Where the prefix ends in a space, a word must end, or the text.
        opened = one_line(text) + " "
        begun = one_line(self.prefix) + (" " if self.closes_word else "")
        return (
            *([] if opened.startswith(begun) else [f"prefix: {self.prefix}"]),
            *(f"must: {phrase}" for phrase in self.must if not occurs(phrase, text)),
            *(f"never: {phrase}" for phrase in self.never if occurs(phrase, text)),
        )

    @property
    def closes_word(self) -> bool:
        """Whether no word may go on after the prefix."""
        return self.prefix[-1:].isspace() and not self.prefix.isspace()


@dataclass(frozen=True)
class Request:
    """A text to translate and what is asked of its translation."""

    text: str
    constraints: Constraints | None = None

    @classmethod
    def parse(cls, line: str, where: str) -> "Request":
        """Read ``{"text": "…"}`` with the keys of ``Constraints.from_json`` beside it.

        ``"to"`` and ``"tag"`` become the tags of the text (``SourceTags``).

        Raises:
            InputError: The line is something else; the message begins with ``where``.
        """
        try:
            values = json.loads(line)
            # An escape can spell half of a character, which no text has.
            json.dumps(values, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise InputError(
                f'{where}: not JSON; write {{"text": "…"}}, one object a line'
            ) from error
        if not isinstance(values, dict) or not isinstance(text := values.pop("text", None), str):
            raise InputError(f'{where}: no "text"; write {{"text": "…"}}, one object a line')
        tags = SourceTags(*(_name(values.pop(key, None), key, where) for key in ("to", "tag")))
        text = with_tags(text, tags)
        return cls(text, Constraints.from_json(values, where) if values else None)


def _name(value: object, key: str, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError(f'{where}: "{key}" must be a string, not {value!r}')
    return value


def _phrases(values: object, key: str, where: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f'{where}: "{key}" must be a list of strings, not {values!r}')
    return tuple(values)


def _objections(constraints: Constraints) -> Iterator[str]:
    for name in ("must", "never"):
        if not all(map(one_line, getattr(constraints, name))):
            yield f"a phrase of {name} is empty; drop it"
    for never in constraints.never:
        for phrase in constraints.must:
            if occurs(never, phrase):
                yield f"must {phrase!r} has {never!r}, which never is allowed; drop one of them"
        if occurs(never, constraints.prefix):
            yield (
                f"the prefix {constraints.prefix!r} has {never!r}, which never is allowed; "
                "drop one of them"
            )
