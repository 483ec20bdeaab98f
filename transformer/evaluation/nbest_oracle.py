"""The candidate nearest to a reference, by sentence BLEU.

It knows raw text only. Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.3.
"""

from collections.abc import Sequence

from sacrebleu.metrics import BLEU

from transformer.common.errors import InputError


def nearest(candidates: Sequence[str], reference: str, bleu: BLEU) -> str:
    """The candidate with the best sentence BLEU (exponential smoothing); of a tie the first.

    Args:
        candidates: One or more.
        reference: The correct text.
        bleu: Of effective order.

    Raises:
        InputError: There is no candidate.
    """
    if not candidates:
        raise InputError("there is no candidate to choose from; give at least one")
    if len(candidates) == 1:
        return candidates[0]
    return max(candidates, key=lambda one: bleu.sentence_score(one, [reference]).score)
