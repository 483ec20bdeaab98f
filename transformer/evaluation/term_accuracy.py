"""Term accuracy: the fraction of given phrases that occur in the hypotheses."""

from collections.abc import Sequence

from transformer.data.text.phrases import occurs
from transformer.evaluation.metrics import Score


def term_accuracy(
    hypotheses: Sequence[str], terms: Sequence[Sequence[str]], signature: str
) -> Score:
    """Percent of all listed phrases that occur (``occurs``) in the hypothesis of their line."""
    matches = [
        occurs(term, hypothesis)
        for hypothesis, line in zip(hypotheses, terms, strict=True)
        for term in line
    ]
    found, count = sum(matches), len(matches)
    signature = f"nterms:{count}|{signature}"
    return Score.of("term accuracy", 100 * found / count, signature, found=found, terms=count)
