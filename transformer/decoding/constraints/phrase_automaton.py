"""A finite automaton that finds phrases in a text while the search makes it, piece by piece.

However the text is cut into pieces, and only between the edges of words (``occurs``): each edge of
a word is a symbol of its own, so that the phrase ``der`` is the string ``|der|``, which "wieder",
as the automaton reads it, does not have. It knows bytes and pieces, and neither models nor scores.
Source: Aho and Corasick 1975, "Efficient String Matching: An Aid to Bibliographic Search".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.data.text.phrases import OTHER, SPACE, WORD
from transformer.data.tokenization.tokenizer import EOS
from transformer.decoding.constraints.vocabulary_spelling import WITHIN, Spelling, Vocabulary

EDGE = 256
"""The symbol between a character of a word and one of none; bytes are 0 to 255."""
_BEFORE = 3
"""Kinds that the character before may have."""


@dataclass
class _Trie:
    """Nodes of several phrase sets, each set with a root of its own."""

    children: list[dict[int, int]] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    terminal: list[bool] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def add(self, phrases: Sequence[Sequence[int]]) -> None:
        root = self._node(0)
        self.roots.append(root)
        for phrase in phrases:
            node = root
            for symbol in phrase:
                if symbol not in self.children[node]:
                    self.children[node][symbol] = self._node(self.depths[node] + 1)
                node = self.children[node][symbol]
            self.terminal[node] = True

    def _node(self, depth: int) -> int:
        self.children.append({})
        self.depths.append(depth)
        self.terminal.append(False)
        return len(self.children) - 1


class PhraseAutomaton:
    """States of several phrase sets; a text is read from the start of one of them.

    A state that has found a phrase stays.

    Attributes:
        starts: The state before the first piece, of each set.
        found: Of each state, whether a phrase of its set has occurred.
        found_at_end: The same, should the text end there.
        depths: Of each state, how many symbols of a phrase stand at the end of the text.
        spaced: Of each state, whether the text ends in a space.
    """

    starts: Int[Tensor, " sets"]
    found: Bool[Tensor, " states"]
    found_at_end: Bool[Tensor, " states"]
    depths: Int[Tensor, " states"]
    spaced: Bool[Tensor, " states"]

    def __init__(self, sets: Sequence[Sequence[Spelling]], vocabulary: Vocabulary) -> None:
        """Build it on the CPU for these sets of phrases, as they are spelt; the empty one occurs.

        Memory is 12 bytes times symbols of all phrases times different bytes among them.
        """
        known = sorted({byte for phrases in sets for phrase in phrases for byte, _ in phrase})
        symbols = {byte: number for number, byte in enumerate(known, start=1)} | {
            EDGE: len(known) + 1
        }
        trie = _Trie()
        for phrases in sets:
            trie.add([[symbols[symbol] for symbol in with_edges(phrase)] for phrase in phrases])
        moves, terminal = _moves(trie, len(symbols) + 1)
        # nodes -> states: a node for each kind of the character before
        before = np.tile(np.arange(_BEFORE), len(moves))
        nodes = np.arange(len(moves)).repeat(_BEFORE)
        at_end = np.where(before == WORD, moves[nodes, len(known) + 1], nodes)
        self.starts = torch.tensor(trie.roots) * _BEFORE + OTHER
        self.found = torch.from_numpy(terminal[nodes])
        self.found_at_end = torch.from_numpy(terminal[at_end])
        self.depths = torch.tensor(trie.depths).repeat_interleave(_BEFORE)
        self.spaced = torch.from_numpy(before == SPACE)
        self._table = torch.from_numpy(_table(moves))
        self._classes = torch.from_numpy(_classes(vocabulary, known))
        self._lengths = torch.from_numpy(vocabulary.lengths)
        self._rows: dict[tuple[int, bool], Bool[Tensor, " vocab"]] = {}

    def to(self, device: torch.device) -> "PhraseAutomaton":
        """Move it there."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def read(self, states: Int[Tensor, "*rows"], subwords: Int[Tensor, "*rows"]) -> Tensor:
        """The states after these pieces; control symbols change nothing."""
        width = self._table.size(1)
        for index in range(int(self._lengths[subwords].max())):
            symbol = self._classes[subwords, index]
            states = self._table.view(-1)[states * width + symbol].long()
        return states

    def completing(
        self, states: Int[Tensor, "*rows"], at_end: bool = False
    ) -> Bool[Tensor, "*rows vocab"]:
        """Which pieces, or the end of the text, would complete a phrase of the set.

        With ``at_end``, which pieces would if the text ended after them. Computed for each state
        once; a search visits few of them.
        """
        visited, indices = states.unique(return_inverse=True)
        rows = [self._completing(state, at_end) for state in visited.tolist()]
        return torch.stack(rows)[indices]

    def _completing(self, state: int, at_end: bool) -> Bool[Tensor, " vocab"]:
        if (state, at_end) not in self._rows:
            subwords = torch.arange(len(self._lengths), device=self.found.device)
            after = self.read(torch.full_like(subwords, state), subwords)
            row = (self.found_at_end if at_end else self.found)[after]
            row[EOS] = self.found_at_end[state]
            self._rows[state, at_end] = row
        return self._rows[state, at_end]


def with_edges(phrase: Spelling) -> list[int]:
    """The symbols of a phrase: its bytes, and ``EDGE`` wherever a word begins or ends."""
    symbols, before = [], OTHER
    for byte, kind in phrase:
        if kind != WITHIN:
            if (kind == WORD) != (before == WORD):
                symbols.append(EDGE)
            before = kind
        symbols.append(byte)
    return [*symbols, EDGE] if before == WORD else symbols


def _moves(
    trie: _Trie, symbols: int
) -> tuple[Int[np.ndarray, "nodes symbols"], Bool[np.ndarray, " nodes"]]:
    """Where each symbol leads, 0 being any that no phrase has; and where a phrase has occurred."""
    moves = np.zeros((len(trie.children), symbols), dtype=np.int64)
    terminal = np.array(trie.terminal)
    for root in trie.roots:
        moves[root] = root
        queue = []
        for symbol, child in trie.children[root].items():
            moves[root, symbol] = child
            queue.append((child, root))
        for node, suffix in queue:
            terminal[node] |= terminal[suffix]
            moves[node] = moves[suffix]
            for symbol, child in trie.children[node].items():
                queue.append((child, int(moves[suffix, symbol])))
                moves[node, symbol] = child
    stays = terminal.nonzero()[0]
    moves[stays] = stays[:, None]
    return moves, terminal


def _table(moves: Int[np.ndarray, "nodes symbols"]) -> Int[np.ndarray, "states classes"]:
    """State and class of a byte to state; the last class is no byte, and changes nothing.

    The class is the kind of the byte and its symbol; edges are found by the kinds.
    """
    nodes, known = len(moves), moves.shape[1] - 1
    table = np.empty((nodes, _BEFORE, 4 * known + 1), dtype=np.int32)
    same = np.arange(nodes)[:, None]
    for before in range(_BEFORE):
        table[:, before, -1:] = same * _BEFORE + before
        for kind in (WORD, SPACE, OTHER, WITHIN):
            now = before if kind == WITHIN else kind
            edge = (now == WORD) != (before == WORD)
            after = moves[moves[:, -1], :-1] if edge else moves[:, :-1]
            # A space after a space is none.
            after = same if before == now == SPACE else after
            table[:, before, kind * known : (kind + 1) * known] = after * _BEFORE + now
    return table.reshape(nodes * _BEFORE, -1)


def _classes(vocabulary: Vocabulary, known: list[int]) -> Int[np.ndarray, "vocab longest"]:
    """Of each byte of each piece; see ``_table``."""
    symbols = np.zeros(256, dtype=np.int64)
    symbols[known] = np.arange(1, len(known) + 1)
    width = len(known) + 1
    classes = vocabulary.kinds * width + symbols[vocabulary.values]
    return np.where(vocabulary.values < 0, 4 * width, classes)
