"""Term accuracy: the share of given phrases that the hypotheses say.

It knows raw text only: neither where the phrases come from nor whether the search was told. What it
means that a text says a phrase is told by the caller, in one word with the search.
"""

from collections.abc import Callable, Sequence

from transformer.common.errors import InputError
from transformer.evaluation.metrics import DECIMALS, Score


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
        signature: How ``occurs`` looks and whether the search was made to say them; the number of
            terms is put before it.

    Raises:
        InputError: The numbers of lines differ, or there is no term at all.
    """
    if len(hypotheses) != len(terms):
        raise InputError(
            f"{len(terms)} lines of terms do not fit {len(hypotheses)} sentences; give one line "
            "for each, empty where there is no term"
        )
    told = [
        occurs(term, hypothesis)
        for hypothesis, line in zip(hypotheses, terms, strict=True)
        for term in line
    ]
    if not told:
        raise InputError("there is no term to look for; give at least one")
    value = 100 * sum(told) / len(told)
    signature = f"nterms:{len(told)}|{signature}"
    fields = {
        "name": "term accuracy",
        "score": round(value, DECIMALS),
        "signature": signature,
        "found": sum(told),
        "terms": len(told),
    }
    return Score("term accuracy", value, signature, fields)
