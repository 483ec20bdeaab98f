"""A finite automaton that finds phrases in a text during the search, subword by subword.

It reads the bytes that each subword of the vocabulary spells, so that it finds a phrase in any
segmentation. It finds it only between the edges of words (``occurs``): each edge of a word is a
symbol of its own, so that the phrase ``der`` is the string ``|der|``, which does not occur in
"wieder".

Source: Aho and Corasick 1975, "Efficient String Matching: An Aid to Bibliographic Search".
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.data.text.phrases import OTHER, SPACE, WORD, char_kind
from transformer.data.tokenization.normalization import WORD_START
from transformer.data.tokenization.tags import is_tag
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

WITHIN = 3
"""The kind of a byte that continues a character."""
NEVER = np.iinfo(np.int16).max
"""More subwords than any word needs."""

Spelling = tuple[tuple[int, int], ...]
"""(byte, kind) of each byte of a text."""

_BYTES = re.compile(rf"{WORD_START}?((<0x[0-9A-F]{{2}}>)+)")
# First bytes of letters: Latin to Arabic, Indic and Georgian, Ethiopic to Hangul. Other characters
# beyond ASCII are mostly punctuation, signs, or of scripts without spaces.
_LETTER_BYTES = frozenset((*range(0xC3, 0xE0), 0xE0, 0xE1, 0xEB, 0xEC, 0xED))


def spell(text: str) -> Spelling:
    """Spell a text; any space becomes the byte of a plain space."""
    spelled: list[tuple[int, int]] = []
    for character in text:
        kind = char_kind(character)
        first, *continuing = b" " if kind == SPACE else character.encode()
        spelled.append((first, kind))
        spelled += [(byte, WITHIN) for byte in continuing]
    return tuple(spelled)


@dataclass(frozen=True)
class Vocabulary:
    """The spelling of all subwords, in arrays of one row a subword."""

    spellings: tuple[Spelling, ...]
    """Of each subword; empty for control symbols."""
    values: Int[np.ndarray, "vocab longest"]
    """Bytes, padded with -1."""
    kinds: Int[np.ndarray, "vocab longest"]
    lengths: Int[np.ndarray, " vocab"]
    """In bytes."""

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> "Vocabulary":
        subwords = tokenizer.subwords(range(tokenizer.target_vocab_size))
        spellings = [_spell_subword(*numbered) for numbered in enumerate(subwords)]
        spellings[UNK] = spell(_unknown(tokenizer, subwords))
        return cls.from_spellings(spellings)

    @classmethod
    def from_spellings(cls, spellings: Sequence[Spelling]) -> "Vocabulary":
        lengths = np.array([len(spelling) for spelling in spellings])
        filled = np.arange(lengths.max()) < lengths[:, None]
        values = np.full(filled.shape, -1)
        kinds = np.zeros(filled.shape, dtype=np.int64)
        values[filled], kinds[filled] = zip(*chain(*spellings), strict=True)
        return cls(tuple(spellings), values, kinds, lengths)

    @cached_property
    def numbers(self) -> dict[bytes, int]:
        """The subword that is spelled in these bytes."""
        return {_bytes(spelling): number for number, spelling in enumerate(self.spellings)}

    @property
    def continues_word(self) -> Bool[Tensor, " vocab"]:
        return torch.from_numpy((self.kinds[:, 0] == WORD) & (self.lengths > 0))

    def longest(self, spelling: Spelling) -> int:
        """The longest subword that this text begins with; -1 for an empty text."""
        text = _bytes(spelling)
        for end in range(min(len(text), self.values.shape[1]), 0, -1):
            if text[:end] in self.numbers:
                return self.numbers[text[:end]]
        return -1

    def spelling_out(self, text: bytes) -> Int[np.ndarray, "spelled vocab"]:
        """How many subwords are still needed to spell a text.

        Entry (i, v) is for a hypothesis that has spelled i bytes of the text and continues with
        subword v. It is 0 if v reaches the end of the text or goes beyond it, and `NEVER` if v is
        not how the text goes on, or if no subwords spell the rest.
        """
        after = np.full((len(text), len(self.lengths)), NEVER, dtype=np.int16)
        # The fewest subwords for what is left.
        fewest = [0] * (len(text) + 1)
        for spelled in reversed(range(len(text))):
            left = text[spelled:]
            for end in range(1, len(left)):
                after[spelled, self._spelled_in(left[:end], left[:end])] = fewest[spelled + end]
            # Of what begins with all that is left, this is after the last in the order of bytes.
            last = left + b"\xff" * self.values.shape[1]
            after[spelled, self._spelled_in(left, last)] = 0
            fewest[spelled] = min(int(after[spelled].min()) + 1, NEVER)
        return after

    def _spelled_in(self, first: bytes, last: bytes) -> Int[np.ndarray, " subwords"]:
        """The subwords from the first to the last spelling, in the order of bytes."""
        spellings, subwords = self._in_order
        return subwords[bisect_left(spellings, first) : bisect_right(spellings, last)]

    @cached_property
    def _in_order(self) -> tuple[list[bytes], Int[np.ndarray, " vocab"]]:
        spellings = list(map(_bytes, self.spellings))
        subwords = sorted(range(len(spellings)), key=spellings.__getitem__)
        return [spellings[subword] for subword in subwords], np.array(subwords)

    def join(self, subwords: Sequence[int]) -> Spelling:
        return tuple(pair for subword in subwords for pair in self.spellings[subword])


def _bytes(spelling: Spelling) -> bytes:
    return bytes(byte for byte, _ in spelling)


def _spell_subword(number: int, subword: str) -> Spelling:
    if number in (PAD, BOS, EOS) or is_tag(subword):
        return ()
    match = _BYTES.fullmatch(subword)
    if match:
        content = bytes.fromhex(match[1].replace("<0x", "").replace(">", ""))
        space = spell(" ") if subword.startswith(WORD_START) else ()
        return (*space, *((byte, _byte_kind(byte)) for byte in content))
    return spell(subword.replace(WORD_START, " "))


def _unknown(tokenizer: Tokenizer, subwords: Sequence[str]) -> str:
    """What UNK becomes in a text: ``" \u2047 "`` in SentencePiece's, nothing in Marian's."""
    letters = (number for number, subword in enumerate(subwords) if subword.isalpha())
    other = next(letters, EOS + 1)
    rows = [[other], [other, other], [other, UNK, other]]
    before, both, around = tokenizer.decode_target(rows)
    return around[len(before) : len(around) - (len(both) - len(before))]


def _byte_kind(byte: int) -> int:
    if byte < 0x80:
        return char_kind(chr(byte))
    if byte < 0xC0:
        return WITHIN
    return WORD if byte in _LETTER_BYTES else OTHER


EDGE = 256
"""The symbol at the beginning or end of a word; bytes are 0 to 255."""
_KINDS = 3
_MOST_REMEMBERED = 2**20
"""Subwords in the memory of an automaton, four bytes each."""


class PhraseAutomaton:
    """States of several phrase sets; a state that has found a phrase stays."""

    starts: Int[Tensor, " sets"]
    """The state of each set before the first subword."""
    found: Bool[Tensor, " states"]
    """Whether a state has found a phrase of its set."""
    found_at_end: Bool[Tensor, " states"]
    """The same if the text ends there."""
    depths: Int[Tensor, " states"]
    """Symbols of a phrase at the end of the text, of each state."""
    spaced: Bool[Tensor, " states"]
    """Whether the text of a state ends in a space."""

    def __init__(self, sets: Sequence[Sequence[Spelling]], vocabulary: Vocabulary) -> None:
        """Build it on the CPU; bytes: 12 x symbols of all phrases x distinct bytes in them."""
        known = sorted({byte for phrases in sets for phrase in phrases for byte, _ in phrase})
        symbols = {symbol: number for number, symbol in enumerate([*known, EDGE], start=1)}
        texts = [
            [[symbols[symbol] for symbol in with_edges(phrase)] for phrase in phrases]
            for phrases in sets
        ]
        moves, depths, terminal, roots = _moves(texts, len(symbols) + 1)
        # nodes -> states: a node for each kind of the character before
        before = np.tile(np.arange(_KINDS), len(moves))
        nodes = np.arange(len(moves)).repeat(_KINDS)
        at_end = np.where(before == WORD, moves[nodes, len(known) + 1], nodes)
        self.starts = torch.tensor(roots) * _KINDS + OTHER
        found = terminal[nodes]
        found_at_end = terminal[at_end]
        self.found = torch.from_numpy(found)
        self.found_at_end = torch.from_numpy(found_at_end)
        self.depths = torch.tensor(depths).repeat_interleave(_KINDS)
        self.spaced = torch.from_numpy(before == SPACE)
        table = _table(moves)
        classes = _classes(vocabulary, known)
        self._table = torch.from_numpy(table)
        self._classes = torch.from_numpy(classes)
        ends_word = _ends_word(vocabulary)
        self._host = _Host(
            table=table.reshape(-1),
            classes=classes.T,
            found=found,
            found_at_end=found_at_end,
            lacks_edge=found_at_end & ~found,
            ends_word=ends_word,
        )
        # Rows: without and with ``lacks_edge``.
        self._usual = torch.from_numpy(np.stack((np.zeros_like(ends_word), ends_word)))
        self._unusual: dict[tuple[int, bool], Int[np.ndarray, " subwords"]] = {}
        self._remembered = 0

    def to(self, device: torch.device) -> "PhraseAutomaton":
        """Move it in place."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def read(self, states: Int[Tensor, "*rows"], subwords: Int[Tensor, "*rows"]) -> Tensor:
        """The states after these subwords; control symbols change nothing."""
        width = self._table.size(1)
        for index in range(self._classes.size(1)):
            symbol = self._classes[subwords, index]
            states = self._table.view(-1)[states * width + symbol].long()
        return states

    def completing(
        self, states: Sequence[Sequence[int]], at_end: bool = False
    ) -> Bool[Tensor, "batch beam vocab"]:
        """Which subwords, or the end of the text, would complete a phrase (``at_end``: there).

        Nothing completes a phrase in a state that has found one.
        """
        flat = [state for row in states for state in row]
        unusual = {state: self._find_unusual(state, at_end) for state in dict.fromkeys(flat)}
        counts = [len(unusual[state]) for state in flat]
        rows = torch.from_numpy(self._host.lacks_edge[flat].astype(np.int64))
        completing = self._usual[rows.to(self._usual.device, non_blocking=True)]
        # batch beam vocab -> (batch beam vocab)
        first = np.arange(len(flat)).repeat(counts) * completing.size(1)
        index = torch.from_numpy(first + np.concatenate([unusual[state] for state in flat]))
        index = index.to(completing.device, non_blocking=True)
        completing.view(-1)[index] = ~completing.view(-1)[index]
        return completing.view(len(states), -1, completing.size(1))

    def _find_unusual(self, state: int, at_end: bool) -> Int[np.ndarray, " subwords"]:
        """The few subwords that do not follow the rule for this state.

        The rule: if a phrase lacks only the edge of a word, each subword that ends the word
        completes it; otherwise none does. A row of the vocabulary for each state would be large.
        """
        unusual = self._unusual.get((state, at_end))
        if unusual is None:
            unusual = self._host.unusual(state, at_end)
            if self._remembered > _MOST_REMEMBERED:
                self._unusual.clear()
                self._remembered = 0
            self._unusual[state, at_end] = unusual
            self._remembered += len(unusual)
        return unusual


class _Host(NamedTuple):
    """The automaton in the memory of the host."""

    table: Int[np.ndarray, " states_classes"]
    classes: Int[np.ndarray, "longest vocab"]
    found: Bool[np.ndarray, " states"]
    found_at_end: Bool[np.ndarray, " states"]
    lacks_edge: Bool[np.ndarray, " states"]
    """Whether the edge of a word completes a phrase."""
    ends_word: Bool[np.ndarray, " vocab"]

    def unusual(self, state: int, at_end: bool) -> Int[np.ndarray, " subwords"]:
        if self.found[state]:
            return np.empty(0, dtype=np.int32)
        width = len(self.table) // len(self.found)
        after = np.full(self.classes.shape[1], state)
        for symbols in self.classes:
            after = self.table[after * width + symbols]
        completing = (self.found_at_end if at_end else self.found)[after]
        completing[EOS] = self.found_at_end[state]
        usual = self.ends_word & self.lacks_edge[state]
        return np.flatnonzero(completing != usual).astype(np.int32)


def _ends_word(vocabulary: Vocabulary) -> Bool[np.ndarray, " vocab"]:
    """Whether a word before this subword, or before the end of the text, ends."""
    ends = np.isin(vocabulary.kinds[:, 0], (SPACE, OTHER)) & (vocabulary.lengths > 0)
    ends[EOS] = True
    return ends


def with_edges(phrase: Spelling) -> list[int]:
    """The symbols of a phrase: its bytes, and ``EDGE`` where a word begins or ends."""
    symbols = []
    before = OTHER
    for byte, kind in phrase:
        if kind != WITHIN:
            if (kind == WORD) != (before == WORD):
                symbols.append(EDGE)
            before = kind
        symbols.append(byte)
    return [*symbols, EDGE] if before == WORD else symbols


def _moves(
    sets: Sequence[Sequence[Sequence[int]]], symbols: int
) -> tuple[Int[np.ndarray, "nodes symbols"], list[int], Bool[np.ndarray, " nodes"], list[int]]:
    """The next node by symbol, 0 being any that no phrase has; the depth of each node, whether it
    found a phrase, and the root of each set."""
    children: list[dict[int, int]] = []
    depths: list[int] = []
    ends: list[int] = []
    roots: list[int] = []
    for phrases in sets:
        roots.append(len(children))
        children.append({})
        depths.append(0)
        for phrase in phrases:
            node = roots[-1]
            for symbol in phrase:
                if symbol not in children[node]:
                    children[node][symbol] = len(children)
                    children.append({})
                    depths.append(depths[node] + 1)
                node = children[node][symbol]
            ends.append(node)
    moves = np.zeros((len(children), symbols), dtype=np.int64)
    moves[roots] = np.array(roots)[:, None]
    found = np.zeros(len(children), dtype=bool)
    found[ends] = True
    queue = [(root, root) for root in roots]
    for node, suffix in queue:
        found[node] |= found[suffix]
        moves[node] = moves[suffix]
        for symbol, child in children[node].items():
            queue.append((child, int(moves[suffix, symbol])))
            moves[node, symbol] = child
    stays = found.nonzero()[0]
    moves[stays] = stays[:, None]
    return moves, depths, found, roots


def _table(moves: Int[np.ndarray, "nodes symbols"]) -> Int[np.ndarray, "states classes"]:
    """The next state by state and class of a byte: its kind and symbol; the last is padding."""
    nodes = len(moves)
    known = moves.shape[1] - 1
    table = np.empty((nodes, _KINDS, 4 * known + 1), dtype=np.int32)
    same = np.arange(nodes)[:, None]
    for before in range(_KINDS):
        table[:, before, -1:] = same * _KINDS + before
        for kind in (WORD, SPACE, OTHER, WITHIN):
            now = before if kind == WITHIN else kind
            edge = (now == WORD) != (before == WORD)
            after = moves[moves[:, -1], :-1] if edge else moves[:, :-1]
            # A space after a space is ignored.
            after = same if before == now == SPACE else after
            table[:, before, kind * known : (kind + 1) * known] = after * _KINDS + now
    return table.reshape(nodes * _KINDS, -1)


def _classes(vocabulary: Vocabulary, known: list[int]) -> Int[np.ndarray, "vocab longest"]:
    symbols = np.zeros(256, dtype=np.int64)
    symbols[known] = np.arange(1, len(known) + 1)
    width = len(known) + 1
    classes = vocabulary.kinds * width + symbols[vocabulary.values]
    return np.where(vocabulary.values < 0, 4 * width, classes)
