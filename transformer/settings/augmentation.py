"""The keys under ``augmentation.``."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Annotated

from transformer.common.schema import Range, Settings

Probability = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class AugmentationConfig(Settings, group="augmentation"):
    """Probabilities of disturbances, at most one a pair (``conf/augmentation/none.yaml``)."""

    upper: Probability = 0.0
    title: Probability = 0.0
    lower: Probability = 0.0
    typos: Probability = 0.0
    punctuation: Probability = 0.0
    blanks: Probability = 0.0
    emoji: Probability = 0.0
    noise: Probability = 0.0
    joined: Probability = 0.0

    def _objections(self) -> Iterator[str]:
        if (total := sum(astuple(self))) > 1 + 1e-9:
            yield (
                f"the probabilities of augmentation have the sum {total:.3g}; at most one changes "
                "a pair, so give numbers with a sum of at most 1"
            )

    @property
    def active(self) -> bool:
        return any(astuple(self))
