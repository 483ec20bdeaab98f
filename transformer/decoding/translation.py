"""What a translator returns: text, pieces and scores.

It does not know how they were found.
"""

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Candidate:
    """One entry of an n-best list.

    Attributes:
        text: Detokenised, without any line end.
        score: What the search ranks by: the log-probability over the length penalty.
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
        attention: On request, how much each target piece looked at each source piece; what a row
            lacks to one fell on the end of the source.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    nbest: tuple[Candidate, ...]
    attention: Float[Tensor, "target source"] | None = field(default=None, compare=False)


BLANK = Translation("", 0.0, (), (Candidate("", 0.0, 0.0, ()),))
"""Of a blank text; no model is asked."""
