"""What a translator returns: text, pieces and scores.

It does not know how they were found.
"""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from transformer.data.text.word_alignment import Links, format_links
from transformer.decoding.constraints.request import Constraints


@dataclass(frozen=True)
class Candidate:
    """One entry of an n-best list.

    Attributes:
        text: Detokenised, without any line end.
        score: What the search ranks by: the log-probability over the length penalty; of ``mbr``
            the expected utility, the mean over segments.
        log_probability: Natural logarithm, of the pieces and the end of the sentence.
        tokens: The pieces of the text.
    """

    text: str
    score: float
    log_probability: float
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Translation:
    """The best candidate for one text, and the others.

    Attributes:
        text: See ``Candidate``.
        score: See ``Candidate``; 0 for a blank text.
        tokens: See ``Candidate``.
        nbest: The best first; as many as asked for, or as there are.
        source_tokens: The pieces of the text that was translated.
        attention: On request, how much each of ``tokens`` looked at each of ``source_tokens``
            (``aligning_attention``); what a row lacks to one fell on the end of the source.
        alignment: On request, the (source word, target word) links read off it; words are what
            spaces part.
        unmet: What the text does not keep to of what was asked of it, such as ``must: Haus``;
            None where nothing was asked.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    nbest: tuple[Candidate, ...]
    source_tokens: tuple[str, ...] = ()
    attention: Float[Tensor, "target source"] | None = field(default=None, compare=False)
    alignment: Links | None = field(default=None, compare=False)
    unmet: tuple[str, ...] | None = None

    def checked(self, constraints: Constraints | None) -> "Translation":
        """The same, with what it does not keep to."""
        return replace(self, unmet=constraints.unmet(self.text)) if constraints else self

    def to_json(self) -> dict[str, Any]:
        """Plain values, one object a text; attention, alignment and unmet only where asked for."""
        values: dict[str, Any] = {
            "text": self.text,
            "score": self.score,
            "tokens": self.tokens,
            "source_tokens": self.source_tokens,
            "nbest": [asdict(candidate) for candidate in self.nbest],
        }
        if self.attention is not None:
            values["attention"] = self.attention.tolist()
        if self.alignment is not None:
            values["alignment"] = format_links(self.alignment)
        if self.unmet is not None:
            values["unmet"] = self.unmet
        return values

    def to_line(self) -> str:
        """The text; where links were asked for, ``text ||| 0-0 1-2``, as Marian writes it."""
        if self.alignment is None:
            return self.text
        return f"{self.text} ||| {format_links(self.alignment)}"


BLANK = Translation("", 0.0, (), (Candidate("", 0.0, 0.0, ()),))
"""Of a blank text; no model is asked."""
