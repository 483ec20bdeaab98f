"""The sentences on which one system is better or worse than another, for reading."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformer.evaluation.metrics import build_metric, reference_streams
from transformer.settings.metrics import Better, MetricsConfig


@dataclass(frozen=True)
class MovedSentence:
    """One sentence by two systems: the base, and the other one."""

    line: int
    source: str
    reference: str
    """Several are joined by bars."""
    hypotheses: tuple[str, str]
    scores: Mapping[str, tuple[float, float]]
    """Of this sentence by each metric; BLEU smoothed, of effective order."""

    def change(self, by: str) -> float:
        before, after = self.scores[by]
        return after - before

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        scores: dict[str, Any] = values.pop("scores")
        return values | scores


@dataclass(frozen=True)
class Movement:
    """A whole text by two systems."""

    by: str
    better: int
    worse: int
    same: int
    most_better: list[MovedSentence]
    """The largest gains, the largest first."""
    most_worse: list[MovedSentence]

    def to_json(self) -> dict[str, Any]:
        lists = {"most_better": self.most_better, "most_worse": self.most_worse}
        return {**vars(self), **{name: [s.to_json() for s in own] for name, own in lists.items()}}


class SentenceScores:
    """Each hypothesis alone by each metric; see ``score``."""

    def __init__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str | Sequence[str]],
        metrics: Sequence[str],
        config: MetricsConfig,
        sources: Sequence[str] | None = None,
    ) -> None:
        self.hypotheses = hypotheses
        self.scores: dict[str, list[float]] = {}
        self.signatures: dict[str, str] = {}
        for name in metrics:
            metric = build_metric(name, config, of_sentence=True)
            streams = reference_streams(metric, references, sources)
            found = metric._extract_corpus_statistics(hypotheses, streams)
            self.scores[name] = [metric._compute_score_from_stats(one).score for one in found]
            self.signatures[name] = str(metric.get_signature())


def movement(
    sources: Sequence[str],
    references: Sequence[str | Sequence[str]],
    base: SentenceScores,
    other: SentenceScores,
    *,
    by: str,
    better: Better,
    limit: int,
) -> Movement:
    """Rank the sentences by the gain of the other system; at most ``limit`` each way."""
    moved = []
    for line, source in enumerate(sources):
        right = references[line]
        scores = {name: (own[line], other.scores[name][line]) for name, own in base.scores.items()}
        texts = right if isinstance(right, str) else " | ".join(right)
        pair = base.hypotheses[line], other.hypotheses[line]
        moved.append(MovedSentence(line + 1, source, texts, pair, scores))
    sign = 1 if better == "higher" else -1

    def loss(sentence: MovedSentence) -> float:
        return -sign * sentence.change(by)

    gains = sorted((one for one in moved if loss(one) < 0), key=loss)
    losses = sorted((one for one in moved if loss(one) > 0), key=loss, reverse=True)
    same = len(moved) - len(gains) - len(losses)
    return Movement(by, len(gains), len(losses), same, gains[:limit], losses[:limit])
