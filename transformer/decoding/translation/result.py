"""Results of a translator: text, subwords and scores."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from transformer.data.text.word_alignment import Links, format_links
from transformer.decoding.constraints.request import Constraints


@dataclass(frozen=True)
class Candidate:
    """One entry of an n-best list."""

    text: str
    """Detokenized, without a line end."""
    score: float
    """What the search ranks by: the log-probability divided by the length penalty. For ``mbr`` it
    is the expected utility; a text that is cut into segments has their mean."""
    log_probability: float
    """Natural logarithm of the probability of all subwords and the end of the sentence."""
    tokens: tuple[str, ...]
    is_unfinished: bool = field(default=False, compare=False)
    """Whether the search was cut at the maximum length, of the text or of a part of it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class Translation:
    """The translation of one text: its best candidate, and the n-best list."""

    text: str
    score: float
    """0 for a blank text."""
    tokens: tuple[str, ...]
    nbest: tuple[Candidate, ...]
    """Up to ``nbest`` candidates, the best first."""
    source_tokens: tuple[str, ...] = ()
    attention: Float[Tensor, "target source"] | None = field(default=None, compare=False)
    """On request: the weight of each source subword for each target subword
    (``aligning_attention``). A row sums to less than 1: the end of the source has the rest."""
    alignment: Links | None = field(default=None, compare=False)
    """On request: (source word, target word) links that are read from the attention. They are
    indices from 0; spaces separate words."""
    unmet: tuple[str, ...] | None = None
    """The violated constraints, such as ``must: Haus``; None if the text had no constraints."""
    parts: int = 1
    """Of a source that was split because it is too long for the model (`SourceLimits`)."""
    flags: tuple[str, ...] | None = None
    """On request, the failures of the text (``transformer/quality/failures/flags.py``)."""

    @property
    def is_unfinished(self) -> bool:
        """See ``Candidate.is_unfinished``."""
        return self.nbest[0].is_unfinished

    def checked(self, constraints: Constraints | None) -> "Translation":
        """A copy with ``unmet``; without constraints, this translation itself."""
        return replace(self, unmet=constraints.unmet(self.text)) if constraints else self

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``parts`` only of a split source, the rest on request."""
        values = {
            "text": self.text,
            "score": self.score,
            "tokens": self.tokens,
            "source_tokens": self.source_tokens,
            "nbest": [candidate.to_json() for candidate in self.nbest],
        }
        requested = {
            "attention": None if self.attention is None else self.attention.tolist(),
            "alignment": None if self.alignment is None else format_links(self.alignment),
            "unmet": self.unmet,
            "parts": self.parts if self.parts > 1 else None,
            "flags": self.flags,
        }
        return values | {name: one for name, one in requested.items() if one is not None}

    def to_line(self) -> str:
        """The text; with an alignment ``text ||| 0-0 1-2``, the format of Marian."""
        if self.alignment is None:
            return self.text
        return f"{self.text} ||| {format_links(self.alignment)}"


BLANK = Translation("", 0.0, (), (Candidate("", 0.0, 0.0, ()),))
"""The translation of a blank text: no model runs for it."""


def length_counts(found: Iterable[Translation]) -> tuple[int, int]:
    """The number of translations that reached their maximum length, and of all with a source."""
    cut = [one.is_unfinished for one in found if one.source_tokens]
    return sum(cut), len(cut)
