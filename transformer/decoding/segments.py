"""Cut a text that is too long for the model into parts that are not.

It knows pieces as they are spelt in the vocabulary, and neither the model nor translations.
"""

from collections.abc import Sequence

from transformer.data.segmentation import WORD_START

SENTENCE_ENDS = (".", "!", "?", "\u2026", "。", "！", "？")


def segment_lengths(pieces: Sequence[str], most: int) -> list[int]:
    """Lengths of consecutive parts of at most ``most`` pieces each.

    A part ends where a sentence ends, else before a word, else wherever it is full.
    """
    lengths = []
    start = 0
    while len(pieces) - start > most:
        cuts = [cut for cut in range(start + most, start, -1) if pieces[cut].startswith(WORD_START)]
        ends = [cut for cut in cuts if pieces[cut - 1].endswith(SENTENCE_ENDS)]
        cut = (ends or cuts or [start + most])[0]
        lengths.append(cut - start)
        start = cut
    return [*lengths, len(pieces) - start]
