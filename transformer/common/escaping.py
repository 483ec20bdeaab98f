"""Escapes text of a corpus for reports; invisible characters become ``⟨U+001B⟩``."""

import json
import re

# ASCII with a meaning in the middle of a line of Markdown, and the dot of www., which makes a link.
_MARKS = re.compile(r"[!\"#$&'*:;<=>?@\[\\\]^_`{|}~]|(?<=[wW]{3})\.")

# GitHub makes a link of a mail address, whatever is escaped in it.
_MAIL = re.compile(r"(?<=[\w.+-])@(?=[\w-])")


def escaped(text: str) -> str:
    """Return the text as one line of visible characters."""
    return "".join(
        character if character.isprintable() and character not in "⟨⟩" else _spelt(character)
        for character in text
    )


def shortened(text: str, letters: int) -> str:
    """The beginning of a text, with an ellipsis if it has more letters."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def escaped_markdown(text: str) -> str:
    """Return the text for a heading or table cell in Markdown, not at its start; without links."""
    return _MARKS.sub(r"\\\g<0>", _MAIL.sub(_spelt("@"), escaped(text)))


def escaped_json(values: object) -> str:
    """Return values as JSON of visible characters, which is read back as the same values."""
    written = json.dumps(values, indent=1, ensure_ascii=False)
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in written
    )


def _spelt(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
