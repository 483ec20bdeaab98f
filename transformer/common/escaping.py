"""Escapes text of a corpus for reports; invisible characters become ``⟨U+001B⟩``."""

import json


def escaped(text: str) -> str:
    """Return the text as one line of visible characters."""
    return "".join(
        character if character.isprintable() and character not in "⟨⟩" else _spelled(character)
        for character in text
    )


def shortened(text: str, letters: int) -> str:
    """The beginning of a text, with an ellipsis if it has more letters."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def escaped_json(values: object) -> str:
    """Return values as JSON of visible characters, which is read back as the same values."""
    written = json.dumps(values, indent=1, ensure_ascii=False)
    characters = set(written) - {"\n"}
    invisible = [character for character in characters if not character.isprintable()]
    return written.translate({ord(sign): json.dumps(sign)[1:-1] for sign in invisible})


def _spelled(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
