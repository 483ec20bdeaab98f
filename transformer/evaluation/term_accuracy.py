"""Term accuracy: the fraction of given phrases that occur in the hypotheses.

It knows raw text only. The caller defines when a phrase occurs, in agreement with the search.
"""

from collections.abc import Callable, Sequence

from transformer.common.errors import InputError
from transformer.evaluation.metrics import Score


def term_accuracy(
    hypotheses: Sequence[str],
    terms: Sequence[Sequence[str]],
    occurs: Callable[[str, str], bool],
    signature: str,
) -> Score:
    """Percent of all listed phrases that occur in the hypothesis of their line.

    Args:
        hypotheses: One a line.
        terms: Phrases of each line, in the same order; a line may have none.
        occurs: Whether a phrase (first) occurs in a text (second).
        signature: How ``occurs`` matches and whether the search was constrained; the number of
            terms is put before it.

    Raises:
        InputError: There is no term at all.
        ValueError: The numbers of lines differ.
    """
    matches = [
        occurs(term, hypothesis)
        for hypothesis, line in zip(hypotheses, terms, strict=True)
        for term in line
    ]
    if not matches:
        raise InputError("there is no term to look for; give at least one")
    terms_found, count = sum(matches), len(matches)
    signature = f"nterms:{count}|{signature}"
    percent = 100 * terms_found / count
    return Score.of("term accuracy", percent, signature, found=terms_found, terms=count)
