"""Samples subword segmentations of a text: a function of vocabulary, text and seed.

The random generator of SentencePiece differs in each process. Unigram: Kudo 2018, section 3.3, over
the whole lattice. BPE: Provilkov et al. 2020, algorithm 1: before each merge, it draws again which
merges are dropped. SentencePiece drops a merge for good, and makes much smaller subwords.
"""

import heapq
import math
import re
from bisect import bisect
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Any

from transformer.data.tokenization.normalization import WORD_START

# A character without a subword, spelled in bytes, has the log probability of the worst subword
# minus this, as in SentencePiece.
_UNKNOWN_PENALTY = 10.0
# Words whose lattice is kept, a few kilobytes each, and their maximum length: in text without
# spaces a word is a whole sentence, which is rarely repeated.
_WORDS_KEPT = 20_000
_LONGEST_KEPT = 24

Arrivals = tuple[list[float], list[tuple[int, tuple[int, ...]]]]
"""Ways to reach a position of a word: cumulative weights, and (start, subwords) of each."""

Merge = tuple[float, int, int, str]
"""A merge of two symbols: the negative score, their indices, and the merged symbol."""


class SegmentationSampler:
    """Samples segmentations with the subwords and scores of a SentencePiece model."""

    def __init__(
        self, model: Any, algorithm: str, strength: float, whole: Sequence[str] = ()
    ) -> None:
        """Prepare; ``strength`` is alpha or the dropout probability; ``whole`` are not cut."""
        longest_first = sorted(map(re.escape, whole), key=len, reverse=True)
        self._whole = re.compile(f"({'|'.join(longest_first)})") if whole else None
        self._subwords = {
            model.id_to_piece(index): (index, model.get_score(index))
            for index in range(model.get_piece_size())
            if not (model.is_control(index) or model.is_unknown(index) or model.is_byte(index))
        }
        self._bytes = [model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        self._strength = strength
        self._draw_word = self._draw_unigram if algorithm == "unigram" else self._draw_bpe
        self._longest = max(map(len, self._subwords))
        worst = min(score for _, score in self._subwords.values())
        self._unknown_score = worst - _UNKNOWN_PENALTY
        self._kept_lattice = lru_cache(maxsize=_WORDS_KEPT)(self._build_lattice)

    def draw(self, text: str, seed: int) -> list[int]:
        random = Random(seed)
        ids: list[int] = []
        for word in text.split(" ") if text else ():
            # No subword spans a space: words are independent of each other.
            parts = self._whole.split(WORD_START + word) if self._whole else [WORD_START + word]
            for index, part in enumerate(parts):
                # Every second part is a word of ``whole``.
                ids.extend(self._ids(part) if index % 2 else self._draw_word(part, random))
        return ids

    def _draw_unigram(self, word: str, random: Random) -> list[int]:
        build = self._kept_lattice if len(word) <= _LONGEST_KEPT else self._build_lattice
        lattice, drawn, position = build(word), [], len(word)
        while position > 0:
            cumulative, arrivals = lattice[position - 1]
            choice = bisect(cumulative, random.random() * cumulative[-1], hi=len(arrivals) - 1)
            position, subwords = arrivals[choice]
            drawn.append(subwords)
        return [subword for subwords in reversed(drawn) for subword in subwords]

    def _build_lattice(self, word: str) -> list[Arrivals]:
        """Return the ways to reach each position after the first, with their weights."""
        reached, lattice = [0.0], []
        for end in range(1, len(word) + 1):
            scores: list[float] = []
            arrivals: list[tuple[int, tuple[int, ...]]] = []
            for start in range(max(0, end - self._longest), end):
                subword = self._subwords.get(word[start:end])
                if subword is not None:
                    scores.append(reached[start] + self._strength * subword[1])
                    arrivals.append((start, (subword[0],)))
            if word[end - 1] not in self._subwords:
                scores.append(reached[end - 1] + self._strength * self._unknown_score)
                arrivals.append((end - 1, self._spelled(word[end - 1])))
            highest = max(scores)
            cumulative = list(accumulate(math.exp(score - highest) for score in scores))
            reached.append(highest + math.log(cumulative[-1]))
            lattice.append((cumulative, arrivals))
        return lattice

    def _draw_bpe(self, word: str, random: Random) -> list[int]:
        symbols = list(word)
        before, after = list(range(-1, len(word) - 1)), list(range(1, len(word) + 1))
        merges: list[Merge] = []
        for left in range(len(symbols) - 1):
            self._offer(merges, symbols, left, left + 1)
        while kept := self._draw_merge(merges, symbols, random):
            _, left, right, merged = kept
            symbols[left], symbols[right] = merged, ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            self._offer(merges, symbols, before[left], left)
            self._offer(merges, symbols, left, after[left])
        return [subword for symbol in symbols if symbol for subword in self._ids(symbol)]

    def _draw_merge(
        self, merges: list[Merge], symbols: Sequence[str], random: Random
    ) -> Merge | None:
        """Take the best merge that is not dropped; the dropped ones are back for the next merge."""
        dropped: list[Merge] = []
        while merges:
            offer = heapq.heappop(merges)
            _, left, right, merged = offer
            if not symbols[right] or symbols[left] + symbols[right] != merged:
                continue
            if random.random() >= self._strength:
                for merge in dropped:
                    heapq.heappush(merges, merge)
                return offer
            dropped.append(offer)
        return None

    def _offer(self, merges: list[Merge], symbols: Sequence[str], left: int, right: int) -> None:
        if left >= 0 and right < len(symbols):
            merged = symbols[left] + symbols[right]
            if merged in self._subwords:
                heapq.heappush(merges, (-self._subwords[merged][1], left, right, merged))

    def _ids(self, symbol: str) -> tuple[int, ...]:
        subword = self._subwords.get(symbol)
        return self._spelled(symbol) if subword is None else (subword[0],)

    def _spelled(self, character: str) -> tuple[int, ...]:
        return tuple(self._bytes[byte] for byte in character.encode("utf-8"))
