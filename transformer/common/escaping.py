"""Text of a corpus as a report shows it: never markup, and no command to a terminal.

Each character that cannot be seen is spelt ``⟨U+001B⟩``: control characters, ends of lines of any
kind, direction marks, spaces but the plain one. So are the two brackets, so that the text can be
read back. It does not know which report the text stands in.
"""

import json
import re

# ASCII that means something to Markdown in the middle of a line: every punctuation mark but those
# that numbers, paths and names are full of.
# The dot of www. makes a link of what follows, as the colon of http:// would.
_MARKS = re.compile(r"[!\"#$&'*:;<=>?@\[\\\]^_`{|}~]|(?<=[wW]{3})\.")

# What GitHub takes for a mail address whatever is escaped in it: it looks at what is shown.
_MAIL = re.compile(r"(?<=[\w.+-])@(?=[\w-])")


def escaped(text: str) -> str:
    """The text in one line that can be seen whole; a terminal prints it as it is."""
    return "".join(
        character if character.isprintable() and character not in "⟨⟩" else _spelt(character)
        for character in text
    )


def escaped_markdown(text: str) -> str:
    """The same for a heading or a cell of a table in Markdown, after its first character.

    Nothing of it becomes a link: the sign within a mail address is spelt ``⟨U+0040⟩``.
    """
    return _MARKS.sub(r"\\\g<0>", _MAIL.sub(_spelt("@"), escaped(text)))


def escaped_json(values: object) -> str:
    """Values as JSON that a terminal can print; a program reads the very same values."""
    written = json.dumps(values, indent=1, ensure_ascii=False)
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in written
    )


def _spelt(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
