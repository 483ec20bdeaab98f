"""Where systems differ: BLEU by the length of the source, and words by how often training had them.

It knows raw text and word counts: neither models nor files, nor where the counts come from.
Source: Neubig et al. 2019, "compare-mt: A Tool for Holistic Comparison of Language Generation
Systems", section 2.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sacrebleu.metrics import BLEU

from transformer.common.errors import InputError

Words = Sequence[str]
"""The words of one sentence."""


@dataclass(frozen=True)
class LengthBucket:
    """Sentences whose source has so many words.

    Attributes:
        label: Such as 6-10, or 51+.
        sentences: How many.
        bleu: Of each system on them, from 0 to 100; None where no reference has as many words as
            the longest n-grams of BLEU (4): it would be 0, however right the hypotheses are.
    """

    label: str
    sentences: int
    bleu: tuple[float, ...] | None


@dataclass(frozen=True)
class WordMatch:
    """How well one system says the words of a bucket; each from 0 to 100.

    Attributes:
        recall: Share of the words of the references that the hypothesis of their sentence has.
        precision: Share of the words of the hypotheses that the reference has.
        f1: Their harmonic mean.
    """

    recall: float
    precision: float
    f1: float


@dataclass(frozen=True)
class FrequencyBucket:
    """Words that training has so often.

    Attributes:
        label: Such as 0, 2-4, or 1000+.
        words: Of the references, with repetitions.
        matches: Of each system.
    """

    label: str
    words: int
    matches: tuple[WordMatch, ...]


def require_edges(edges: Sequence[int], key: str) -> None:
    """Refuse what does not part the numbers from 0 on into buckets.

    Args:
        edges: The first number of each bucket after the first.
        key: What the user calls them.

    Raises:
        InputError: They do not rise from above 0.
    """
    if any(low >= high for low, high in pairwise([0, *edges])):
        raise InputError(f"{key}={list(edges)} must be numbers above 0 that rise")


def bucket_labels(edges: Sequence[int]) -> list[str]:
    """How the buckets are written, from the one that begins at 0 to the one without an end."""
    bounded = [
        str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise([0, *edges])
    ]
    return [*bounded, f"{edges[-1] if edges else 0}+"]


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[str],
    bleu: BLEU,
    edges: Sequence[int],
) -> list[LengthBucket]:
    """Corpus BLEU of the sentences of each length; buckets without a sentence are left out.

    Args:
        sources: One a line; a word is what spaces part.
        hypotheses: Of each system.
        references: One a line.
        bleu: As the whole is scored.
        edges: The first length of each bucket after the first.
    """
    indices: dict[int, list[int]] = {}
    for line, source in enumerate(sources):
        indices.setdefault(bisect_right(edges, len(source.split())), []).append(line)
    words, labels, found = words_by(bleu), bucket_labels(edges), []
    for bucket, lines in sorted(indices.items()):
        right = [references[line] for line in lines]
        scores = tuple(
            bleu.corpus_score([said[line] for line in lines], [right]).score for said in hypotheses
        )
        counts = any(len(words(line)) >= bleu.max_ngram_order for line in right)
        found.append(LengthBucket(labels[bucket], len(lines), scores if counts else None))
    return found


def words_by(bleu: BLEU) -> Callable[[str], list[str]]:
    """What parts a line into the words that BLEU counts: its tokenizer, and its case."""

    def words(line: str) -> list[str]:
        cased = line.lower() if bleu.lowercase else line
        parted: str = bleu.tokenizer(cased.rstrip())
        return parted.split()

    return words


def word_signature(bleu: BLEU) -> str:
    """How words are parted; ``bleu`` has scored already, else it has no signature."""
    said = dict(part.split(":") for part in str(bleu.get_signature()).split("|"))
    return "|".join(f"{key}:{said[key]}" for key in ("case", "tok", "version"))


def words_by_frequency(
    counts: Mapping[str, int],
    hypotheses: Sequence[Iterable[Words]],
    references: Sequence[Words],
    edges: Sequence[int],
) -> list[FrequencyBucket]:
    """How well the words of each frequency are said; buckets without a word are left out.

    A word of a reference is said when the hypothesis of the sentence has it too, as often as it
    has it.

    Args:
        counts: How often the training text has each word; what is not there, it never has.
        hypotheses: The sentences of each system.
        references: Sentences.
        edges: The first frequency of each bucket after the first.
    """

    def bucketed(words: Iterable[str]) -> Counter[int]:
        return Counter(bisect_right(edges, counts.get(word, 0)) for word in words)

    wanted = bucketed(word for words in references for word in words)
    totals = []
    for system in hypotheses:
        said: Counter[int] = Counter()
        matched: Counter[int] = Counter()
        for hypothesis, reference in zip(system, references, strict=True):
            said += bucketed(hypothesis)
            matched += bucketed((Counter(hypothesis) & Counter(reference)).elements())
        totals.append((matched, said))
    return [
        FrequencyBucket(
            label,
            wanted[bucket],
            tuple(_match(right[bucket], wanted[bucket], said[bucket]) for right, said in totals),
        )
        for bucket, label in enumerate(bucket_labels(edges))
        if wanted[bucket]
    ]


def _match(matched: int, wanted: int, said: int) -> WordMatch:
    f1 = 200 * matched / (wanted + said)
    return WordMatch(100 * matched / wanted, 100 * matched / said if said else 0.0, f1)
