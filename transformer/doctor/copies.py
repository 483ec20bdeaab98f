"""Pairs whose target is the source once more: not translated.

Does not know languages.
"""

import re

from transformer.doctor.check import Fault, PairCheck
from transformer.doctor.pair import NumberedPair, bare, quoted

_FIRST = re.compile(r"[^\W_]")


class Copies(PairCheck):
    """Pairs of the same letters on both sides; numbers alone are no copy."""

    name = "copy"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Show the text."""
        source, target = pair.source, pair.target
        if source != target:
            # Most pairs differ in the first letter: spare them the closer look.
            first, other = _FIRST.search(source), _FIRST.search(target)
            if first is None or other is None or _differ(first[0], other[0]):
                return None
            if bare(source) != bare(target):
                return None
        if not any(map(str.isalpha, source)):
            return None
        return Fault(None, f"untranslated: {quoted(source)}")


def _differ(letter: str, other: str) -> bool:
    """Whether letters are surely not the same; those beyond ASCII have other forms."""
    return letter.isascii() and other.isascii() and letter.lower() != other.lower()
