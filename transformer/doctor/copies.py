"""Pairs whose target is the source once more: not translated.

Does not know languages.
"""

from transformer.doctor.check import Fault, PairCheck
from transformer.doctor.pair import NumberedPair, bare, quoted


class Copies(PairCheck):
    """Pairs of the same letters on both sides; numbers alone are no copy."""

    name = "copy"

    def fault(self, pair: NumberedPair) -> Fault | None:
        """Show the text."""
        source, target = pair.source, pair.target
        if abs(len(source) - len(target)) > len(source) or not any(map(str.isalpha, source)):
            return None
        if source != target and bare(source) != bare(target):
            return None
        return Fault(None, f"untranslated: {quoted(source)}")
