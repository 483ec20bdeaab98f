"""The disturbances of a test text, each with its definition and its reference.

They are not natural errors: rules make them, so that all runs are measured alike. ``upper`` and
``title``: Bogoychev et al. 2023, arXiv 2311.14838, section 3. ``lower``, ``missing_blank`` and
``emoji``: Dhole et al. 2021, arXiv 2112.02721. Typos: Belinkov and Bisk 2018, arXiv 1711.02173,
section 3.2; Karpukhin et al. 2019, arXiv 1902.01509, section 2. ``numbers``: Wang et al. 2021,
arXiv 2107.08357. ``joined``: Kondo et al. 2021, naacl-srw.18. The others are our own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from transformer.data.text.parallel import Pair
from transformer.data.text_noise import changes

Window = Sequence[Pair]


@dataclass(frozen=True)
class Disturbance:
    """A change of a window of pairs to one pair: a pure function of the texts and the generator."""

    name: str
    change: Callable[[Window, Random], Pair]
    reference: Literal["same", "changed", "none"]
    """The reference of the clean text, the same changed as well, or no right target is known."""
    window: int | None = 1
    """Consecutive pairs that make one; None: all of them."""


def _source(change: changes.Change) -> Callable[[Window, Random], Pair]:
    return lambda window, random: (change(window[0][0], random), window[0][1])


def _both(change: changes.Change) -> Callable[[Window, Random], Pair]:
    """Change both sides with equal generators, unless the source stays as it is."""

    def changed(window: Window, random: Random) -> Pair:
        seed, (source, target) = random.random(), window[0]
        new = change(source, Random(seed))
        return (new, change(target, Random(seed))) if new != source else (source, target)

    return changed


def _numbers(window: Window, random: Random) -> Pair:
    """Change the digits if both sides have the same numbers, and has any."""
    source, target = window[0]
    if changes.numbers(source) != changes.numbers(target):
        return window[0]
    return _both(changes.other_numbers)(window, random)


def _joined(window: Window, random: Random) -> Pair:
    source, target = (" ".join(texts) for texts in zip(*window, strict=True))
    return source, target


DISTURBANCES = {
    one.name: one
    for one in (
        Disturbance("upper", _both(changes.upper), "changed"),
        Disturbance("title", _both(changes.title), "changed"),
        Disturbance("lower", _source(changes.lower), "same"),
        Disturbance("no_final_punctuation", _both(changes.without_final_punctuation), "changed"),
        Disturbance(
            "doubled_final_punctuation", _source(changes.doubled_final_punctuation), "same"
        ),
        Disturbance("typo_1", _source(changes.typo), "same"),
        Disturbance("typo_3", _source(changes.three_typos), "same"),
        Disturbance("missing_blank", _source(changes.missing_blank), "same"),
        Disturbance("emoji", _both(changes.emoji), "changed"),
        Disturbance("numbers", _numbers, "changed"),
        Disturbance("html_entities", _source(changes.html_entities), "same"),
        Disturbance("quotes", _source(changes.other_quotes), "same"),
        Disturbance("full_width", _source(changes.full_width), "same"),
        Disturbance("single_word", lambda w, random: (random.choice(w[0][0].split()), ""), "none"),
        Disturbance("joined", _joined, "changed", window=2),
        Disturbance("twice", lambda w, random: _joined([w[0], w[0]], random), "changed"),
        Disturbance("other_language", lambda w, _: (w[0][1], w[0][1]), "none"),
        Disturbance("empty", lambda *_: ("", ""), "same", window=None),
        Disturbance("very_long", _joined, "none", window=50),
    )
}
