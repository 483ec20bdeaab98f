"""BLEU of the recipes on their test sets: what README.md and docs/results.md report.

    python benchmarks/results.py --data FOLDER [--only NAME…] [--seeds 1] [--threads 2]

FOLDER holds ``multi30k`` and ``tanaka_enja``, as ``data.root`` wants them. Each recipe is trained
as its file says, with seeds 1, 2 and so on; validation chooses the checkpoint, the test set is
scored once, at the end of training. A run that is finished is not repeated, so that the command
goes on where it was stopped. BLEU stands in the column of its text: A tokenised and lower-cased, B
raw, C as the Tanaka corpus is segmented, its English lower-cased too. With ``--only`` the page
stays as it is.
"""

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page import write_between
from benchmarks.trained import ROOT, Trained, markdown, train_all
from transformer.model.checkpoint import load_checkpoint

PAGE = ROOT / "docs" / "results.md"
TEXTS = ("A", "B", "C")
COLUMNS = (
    *("recipe", "direction", "model", "parameters"),
    *(f"BLEU {text}" for text in TEXTS),
    *("chrF2", "validation", "seeds", "updates", "hours", "command"),
)


@dataclass(frozen=True)
class Result:
    """A recipe on one direction of its corpus."""

    experiment: str
    corpus: str
    direction: str
    text: str
    """The kind of text that is scored: one of ``TEXTS``."""

    @property
    def name(self) -> str:
        """As a folder is called."""
        return f"{self.experiment}-{self.direction}"

    def run(self, data: Path, folder: Path, seed: int) -> Trained:
        """The run of a seed."""
        source, target = self.direction.split("-")
        overrides = [f"experiment={self.experiment}", f"data.root={data / self.corpus}"]
        overrides += [f"data.source={source}", f"data.target={target}", f"seed={seed}"]
        return Trained(tuple(overrides), folder / f"{self.name}-{seed}")


RESULTS = [
    Result("multi30k_tiny", "multi30k", "en-de", "B"),
    Result("multi30k_tiny", "multi30k", "de-en", "B"),
    Result("multi30k_tiny", "multi30k", "en-fr", "B"),
    Result("multi30k_tok", "multi30k", "en-de", "A"),
    Result("tanaka_enja", "tanaka_enja", "en-ja", "C"),
    Result("tanaka_enja", "tanaka_enja", "ja-en", "C"),
]


def row(result: Result, runs: list[Trained]) -> tuple[list[str], set[str]]:
    """A line of the table, and the signatures of its scores."""
    scores = {name: [run.score("test", name) for run in runs] for name in ("BLEU", "chrF2")}
    best = [max(bleu for _, bleu in run.validated) for run in runs]
    updates = max(run.validated[-1][0] for run in runs)
    hours = statistics.mean(run.hours for run in runs)
    bleu, chrf = (spread([value for value, _ in values]) for values in scores.values())
    cells = [
        *(result.experiment, result.direction, *model(runs[0])),
        *(bleu if text == result.text else "" for text in TEXTS),
        *(chrf, spread(best), str(len(runs)), f"{updates:,}", f"{hours:.2f}"),
        f"`{command(runs[0])}`",
    ]
    return cells, {signature for values in scores.values() for _, signature in values}


def model(run: Trained) -> tuple[str, str]:
    """Layers, width and inner width; and parameters."""
    found = load_checkpoint(run.folder).model
    config = found.config
    layers = f"{config.encoder_layers}+{config.decoder_layers}"
    parameters = sum(parameter.numel() for parameter in found.parameters())
    return f"{layers}, {config.d_model}, {config.ffn_dim}", f"{parameters / 1e6:.2f} M"


def command(run: Trained) -> str:
    """How anyone gets the same run, but for the seed."""
    shown = (one for one in run.overrides if not one.startswith(("data.root=", "seed=")))
    return " ".join(["python train.py", *shown, "data.root=FOLDER"])


def spread(values: list[float]) -> str:
    """The mean, and the standard deviation where there are several."""
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.2f}"


def parse() -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [result.name for result in RESULTS]
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="that train at a time: 1")
    parser.add_argument("--threads", type=int, default=2, help="of each: 2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "results")
    return parser.parse_args()


def main() -> None:
    """Train what is missing; write the table if it is the whole one."""
    arguments = parse()
    data, folder = arguments.data.resolve(), arguments.folder.resolve()
    wanted = [result for result in RESULTS if result.name in arguments.only]
    seeds = range(1, arguments.seeds + 1)
    runs = {result: [result.run(data, folder, seed) for seed in seeds] for result in wanted}
    train_all(
        [run for seed in range(arguments.seeds) for run in (each[seed] for each in runs.values())],
        processes=arguments.processes,
        threads=arguments.threads,
    )
    rows = [row(*each) for each in runs.items()]
    lines = markdown(COLUMNS, [cells for cells, _ in rows])
    lines += ["", *sorted(f"`{one}`" for one in set().union(*(found for _, found in rows)))]
    print("\n".join(lines))
    if wanted == RESULTS:
        write_between(PAGE, "results", lines)


if __name__ == "__main__":
    main()
