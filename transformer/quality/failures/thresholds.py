"""What is usual in the text of a run: lengths, words, scripts, and the confidence of its model."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from transformer.common.errors import InputError, errors_name
from transformer.common.files import written_whole
from transformer.common.language_names import language_name
from transformer.common.schema import typed
from transformer.data.text.parallel import Pair
from transformer.quality.checks.characters import frequent_scripts
from transformer.quality.checks.languages import base_code, common_words
from transformer.quality.checks.lengths import UsualLengths
from transformer.settings.data import DataConfig

FILE = "failure_thresholds.json"
"""Name of the file of a run directory, written at each validation that is the best so far."""

SAMPLE = 10_000
"""Training pairs from which the usual values are learned."""

_MIN_PAIRS = 200
_TAILS = (0.005, 0.995)
_LOWEST = 0.01
"""Quantile of the log-probabilities of the validation."""


@dataclass(frozen=True)
class Thresholds:
    """The usual values; the defaults serve a model without the file.

    ``directions`` are codes; ``common`` words need a single one. ``tails`` are quantiles of
    deviations, as ``UsualLengths`` measures them; ``low_confidence`` is a log-probability per
    token, in nats.
    """

    directions: tuple[tuple[str, str], ...] = ()
    common: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    scripts: tuple[str, ...] = ()
    lengths: UsualLengths = field(default_factory=UsualLengths)
    tails: tuple[float, float] | None = None
    low_confidence: float | None = None

    @classmethod
    def fit(cls, pairs: Sequence[Pair], data: DataConfig) -> "Thresholds":
        """Learn from training pairs; ``data`` are the settings of their corpus."""
        pairs = [pair for pair in pairs if all(map(str.strip, pair))]
        directions = _directions(data)
        sides = [str(source) for source, _ in pairs], [str(target) for _, target in pairs]
        lengths = UsualLengths.fit(pairs)
        tails = None
        if len(pairs) >= _MIN_PAIRS:
            deviations = [
                lengths.deviation(len(source), len(target))[1] for source, target in pairs
            ]
            tails = tuple(np.quantile(deviations, _TAILS).tolist())
        words = [sorted(common_words(side)) if len(directions) == 1 else [] for side in sides]
        scripts = tuple(sorted(frequent_scripts(sides[1])))
        return cls(directions, (tuple(words[0]), tuple(words[1])), scripts, lengths, tails)

    @classmethod
    def read(cls, run: Path, data: DataConfig) -> "Thresholds":
        """The file of a run directory, or the defaults; InputError if the file is wrong."""
        file = run / FILE
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return cls(_directions(data))
        except ValueError as error:
            raise InputError(f"{file} is not JSON ({error}); remove it") from error
        with errors_name(file):
            return typed(cls, values, "thresholds")

    def write(self, run: Path) -> None:
        with written_whole(run / FILE) as part:
            part.write_text(json.dumps(asdict(self), ensure_ascii=False) + "\n", encoding="utf-8")


def lowest_usual(log_probabilities: Sequence[float]) -> float | None:
    """The value that 1 % of the outputs of a validation are below; None for few outputs."""
    few = len(log_probabilities) < _MIN_PAIRS
    return None if few else float(np.quantile(log_probabilities, _LOWEST))


def _directions(data: DataConfig) -> tuple[tuple[str, str], ...]:
    """The directions between two known languages; none if one corpus has another kind of text."""
    pairs = sorted(data.language_pairs)
    languages = [map(base_code, pair) for pair in pairs]
    known = all(a != b and language_name(a) != a and language_name(b) != b for a, b in languages)
    return tuple(pairs) if known else ()
