"""Heads on a terminal: the best of an attention view, and the report of a head ablation."""

from dataclasses import dataclass
from typing import Any

from transformer.evaluation.attention_heads import AttentionView, best_heads
from transformer.evaluation.head_ablation import Ablation, Ablations, Scorer
from transformer.reports.scores import build_table, shown, table_console


def print_best(view: AttentionView) -> None:
    """Show the sentence pair and the best heads, on stderr."""
    rows = [
        (kind.name, named.title, f"{named.layer}.{named.head}", named.text)
        for kind in view.kinds
        for named in best_heads(kind.characters)
    ]
    console = table_console()
    for text in (view.source, view.target):
        console.print(shown(text))
    header = ("attention", "best at", "head", "measured")
    console.print(build_table(f"heads over {view.measured}", header, rows, right=()))


@dataclass(frozen=True)
class HeadReport:
    """The heads of a model, measured by a scorer."""

    scorer: Scorer
    found: Ablations

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.scorer.name,
            "signature": self.scorer.signature,
            "measured": self.scorer.measured,
            "score": self.found.score,
            "heads_off": list(map(str, self.found.off)),
            "heads": [{"head": str(name)} | _values(a) for name, a in self.found.single.items()],
            "pruned": [
                {"share": fraction, "heads_off": list(map(str, a.off))} | _values(a)
                for fraction, a in self.found.pruned.items()
            ],
        }

    def print_tables(self) -> None:
        """Show everything, on stderr."""
        console = table_console()
        scorer = self.scorer
        without = f" (without {', '.join(map(str, self.found.off))})" if self.found.off else ""
        lines = [
            f"{scorer.measured}, {scorer.name} ({scorer.signature})",
            f"with {len(self.found.single)} heads{without}: {self._shown(self.found.score)}",
        ]
        for line in lines:
            console.print(shown(line))
        tables: dict[str, dict[Any, Ablation]] = {
            "without": self.found.single,
            "without the cheapest": {
                f"{fraction:.0%} ({len(a.off)})": a for fraction, a in self.found.pruned.items()
            },
        }
        for first, ablations in tables.items():
            rows = [
                (str(head), self._shown(a.score), f"{a.difference:+z.{scorer.decimals}f}")
                for head, a in ablations.items()
            ]
            if rows:
                header = (first, scorer.name, "difference")
                console.print(build_table("", header, rows, right=(1, 2)))

    def _shown(self, score: float) -> str:
        return f"{score:.{self.scorer.decimals}f}"


def _values(ablation: Ablation) -> dict[str, float]:
    return {"score": ablation.score, "difference": ablation.difference}
