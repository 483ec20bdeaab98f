"""A vocabulary of subwords: a model of SentencePiece, and sampled segmentations.

Sampling: subword regularization (Kudo 2018, section 3.1) for unigram models, BPE dropout (Provilkov
et al. 2020, section 3.1) for BPE. It does not know tags.
"""

import heapq
import math
import re
import struct
from bisect import bisect
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from random import Random
from typing import Any

import sentencepiece

from transformer.data.tokenization.normalization import STAND_IN, WORD_START, normalize
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import Vocabulary
from transformer.settings.tokenizer import UNK, TokenizerConfig

# The type of a piece that a text is cut into before all others.
_USER_DEFINED = 4


def with_subwords(model: bytes, words: Sequence[str]) -> bytes:
    """Append words to a SentencePiece model, whose pieces (field 1) may go on at its end."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    known = {processor.id_to_piece(index) for index in range(processor.get_piece_size())}
    for word in dict.fromkeys(words):
        if word not in known:
            text = _field(1, word.encode())
            score = struct.pack("<Bf", 2 << 3 | 5, 0.0)
            kind = bytes([3 << 3, _USER_DEFINED])
            model += _field(1, text + score + kind)
    return model


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of a protocol buffer: its number, its length and the content."""
    size = len(content)
    length: list[int] = []
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


UNCUT = STAND_IN
"""Suffix of the name of an imported subword that a segmentation never has.

Texts and spellings do not show it."""


class Subwords(Vocabulary):
    """Splits texts into subwords, with the best or a sampled segmentation, and joins them."""

    def __init__(
        self, model: bytes, algorithm: str, config: TokenizerConfig, tags: Tags, threads: int
    ) -> None:
        self._arguments = (model, algorithm, config, tags, threads)
        self.processor = sentencepiece.SentencePieceProcessor(
            model_proto=model, num_threads=threads
        )
        self.tags = tags
        self._algorithm = algorithm
        self._config = config
        self._threads = threads
        self.first_tag = int(self.processor.get_piece_size())
        subwords = range(self.first_tag)
        self.control = frozenset(filter(self.processor.is_control, subwords))
        names = map(self.processor.id_to_piece, subwords)
        self._uncut = {
            name.removesuffix(UNCUT): index
            for index, name in enumerate(names)
            if name.endswith(UNCUT)
        }
        self._stand_in, self._word_start = (
            [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]
            for character in (STAND_IN, WORD_START)
        )

    def __reduce__(self) -> tuple[type["Subwords"], tuple[Any, ...]]:
        return type(self), self._arguments

    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        texts = [normalize(sentence) for sentence in sentences]
        # To SentencePiece U+2581 is the space: the stand-in is cut into bytes, then replaced.
        cut = [text.replace(WORD_START, STAND_IN) for text in texts]
        rows = self._cut(cut) if seeds is None else list(map(self._sampler.draw, cut, seeds))
        for text, row in zip(texts, rows, strict=True):
            if WORD_START not in text:
                continue
            for index in range(len(row) - 2):
                if row[index : index + 3] == self._stand_in:
                    row[index : index + 3] = self._word_start
        return rows

    def join(self, ids: list[int]) -> str:
        return str(self.processor.decode(ids)).replace(UNCUT, "")

    def spell(self, token: int) -> str:
        return str(self.processor.id_to_piece(token)).removesuffix(UNCUT)

    def _cut(self, texts: list[str]) -> list[list[int]]:
        """Split texts; unknown characters that spell an uncut subword are that one."""
        encode = self.processor.encode
        # A list of texts starts a pool of threads, even for one thread.
        rows: list[list[int]] = encode(texts) if self._threads != 1 else list(map(encode, texts))
        if not self._uncut:
            return rows
        for text, row in zip(texts, rows, strict=True):
            if UNK in row:
                names = self.processor.encode(text, out_type=str)
                row[:] = [
                    self._uncut.get(name, UNK) if subword == UNK else subword
                    for subword, name in zip(row, names, strict=True)
                ]
        return rows

    @cached_property
    def _sampler(self) -> "SubwordSampler":
        config = self._config
        return SubwordSampler(
            self.processor, self._algorithm, config.sampling, list(map(normalize, config.words))
        )


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


class SubwordSampler:
    """Samples segmentations with the subwords and scores of a SentencePiece model."""

    def __init__(
        self, model: Any, algorithm: str, strength: float, whole: Sequence[str] = ()
    ) -> None:
        """``strength`` is alpha or the dropout probability; words of ``whole`` are never cut."""
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
        words = text.split(" ") if text else []
        for word in words:
            # No subword spans a space: words are independent of each other.
            parts = self._whole.split(WORD_START + word) if self._whole else [WORD_START + word]
            for index, part in enumerate(parts):
                # Every second part is a word of ``whole``.
                ids.extend(self._ids(part) if index % 2 else self._draw_word(part, random))
        return ids

    def _draw_unigram(self, word: str, random: Random) -> list[int]:
        build = self._kept_lattice if len(word) <= _LONGEST_KEPT else self._build_lattice
        lattice = build(word)
        drawn: list[tuple[int, ...]] = []
        position = len(word)
        while position > 0:
            cumulative, arrivals = lattice[position - 1]
            choice = bisect(cumulative, random.random() * cumulative[-1], hi=len(arrivals) - 1)
            position, subwords = arrivals[choice]
            drawn.append(subwords)
        return [subword for subwords in reversed(drawn) for subword in subwords]

    def _build_lattice(self, word: str) -> list[Arrivals]:
        """Return the ways to reach each position after the first, with their weights."""
        reached = [0.0]  # log of the total weight of all ways to each position
        lattice: list[Arrivals] = []
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
        # The symbols that remain are a linked list of indices.
        before = list(range(-1, len(word) - 1))
        after = list(range(1, len(word) + 1))
        merges: list[Merge] = []
        for left in range(len(symbols) - 1):
            self._offer(merges, symbols, left, left + 1)
        while merge := self._draw_merge(merges, symbols, random):
            _, left, right, merged = merge
            symbols[left] = merged
            symbols[right] = ""
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
