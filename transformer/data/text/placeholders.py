"""Placeholders, URLs and e-mail addresses: text that a translation must keep as it is."""

import re
from collections import Counter

PLACEHOLDER = re.compile(
    r"""
      (?:https?|ftp)://[^\s<>"]+(?<![.,;:!?)\]}'…”»])          # URL
    | \bwww\.[^\s<>"]+(?<![.,;:!?)\]}'…”»])
    | (?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[\w-]{2,63}  # e-mail address
    | \{\{[^{}\n]{1,80}\}\}                                 # {{ name }}
    | [$%#]?\{[^{}\s]{1,80}\}                               # {name}, ${name}
    | (?<![\d%])%(?:\d{1,2}\$|\(\w{1,80}\))?[-+\#0]?\d{0,3}(?:\.\d{1,2})?[@sdiufgxXc](?!\w)
    | %%                                                    # %s and %%
    """,
    re.VERBOSE | re.ASCII,
)

# Most texts have no placeholder, which this finds out faster.
_HINT = re.compile(r"[@{%]|://|www\.")


def keeps_placeholders(source: str, translation: str) -> bool:
    """Whether a translation has each placeholder of its source as often."""
    if not _HINT.search(source):
        return True
    expected = Counter(PLACEHOLDER.findall(source))
    translated = Counter(PLACEHOLDER.findall(translation))
    return all(translated[name] == count for name, count in expected.items())
