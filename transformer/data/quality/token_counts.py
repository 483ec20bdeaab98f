"""How many tokens a text has: counted with a tokenizer, or estimated without one.

Does not know what the lengths are for.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from transformer.data.tokenization.tokenizer import Tokenizer

# Bytes of UTF-8 to a token: 4.2 with 8,000 pieces of English and German (Multi30k).
_BYTES = 4


@runtime_checkable
class TokenCount(Protocol):
    """Lengths of both sides of some pairs."""

    unit: str
    """What is counted, in words."""

    def __call__(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[int], list[int]]:
        """Return the lengths of sources and targets."""


class CountedTokens:
    """Tokens as a tokenizer cuts them."""

    unit = "tokens"

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Count with a tokenizer."""
        self._tokenizer = tokenizer

    def __call__(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[int], list[int]]:
        """Return the lengths of sources and targets."""
        tokenizer = self._tokenizer
        return (
            [len(ids) for ids in tokenizer.encode_source(sources)],
            [len(ids) for ids in tokenizer.encode_target(targets)],
        )


class EstimatedTokens:
    """A quarter of the bytes of a text: no tokenizer is there to ask."""

    unit = "tokens, estimated"

    def __call__(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[int], list[int]]:
        """Return the lengths of sources and targets."""
        return [_estimate(text) for text in sources], [_estimate(text) for text in targets]


def _estimate(text: str) -> int:
    return -(-len(text if text.isascii() else text.encode()) // _BYTES)
