"""Train the experiments and score their test sets; writes the tables of docs/results.md.

    python benchmarks/results/results.py --data FOLDER [--only NAME…] [--seeds 1 2 3]

FOLDER holds ``multi30k``, ``tanaka_enja`` and ``g2p``, as ``data.root`` wants them. Each experiment
is trained as its file says, once with each seed; validation chooses the checkpoint, and the test
set is scored once, at the end of training. Each run is a line of results.jsonl beside this file. A
run with a line is not repeated; delete the line and the run directory to repeat it. A training that
was stopped goes on. Each kind of text has its own table, as scores of different kinds cannot be
compared; README has the rows of experiments as they are.
"""

import argparse
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.records import Records, markdown, publish, short
from benchmarks.support.trained import ROOT, Trained, train_all
from transformer.checkpoint.checkpoint import load_checkpoint

PAGE = ROOT / "docs" / "results.md"
TEXTS = {
    "B": "raw text",
    "A": "tokenized and lower-cased, as papers on Multi30k report it",
    "C": "as the Tanaka corpus is segmented, its English lower-cased",
    "P": "words to phones",
}
"""What is scored."""
README = ROOT / "README.md"
TEST_SETS = {"multi30k": "Multi30k 2016", "tanaka_enja": "Tanaka", None: "pocket"}
IN_WORDS = {"B": "raw", "A": "tokenized, lower-cased", "C": "segmented"}
"""The texts of the table in README."""
SUMMARY = (
    "test set",
    "text",
    "direction",
    "arguments",
    "BLEU",
    "chrF2",
    "seeds",
    "hours",
    "commit",
)


@dataclass(frozen=True)
class Measured:
    """What a run has given.

    Attributes:
        name: Of the experiment and its direction.
        seed: Of the run.
        commit: Of the code that trained it.
        machine: That it was trained on.
        command: How anyone gets it with the present code, but for the seed.
        model: Layers, width and inner width.
        parameters: How many.
        updates: How many.
        hours: Training, validation and tests.
        validation: The best score of the metric that chooses.
        scores: Of the test set by name, that metric first.
        signatures: Of these scores.
    """

    name: str
    seed: int
    commit: str
    machine: str
    command: str
    model: str
    parameters: int
    updates: int
    hours: float
    validation: float
    scores: dict[str, float]
    signatures: dict[str, str]


RECORDS = Records(Path(__file__).with_suffix(".jsonl"), Measured, key=("name", "seed"))


@dataclass(frozen=True)
class Result:
    """An experiment on one direction, or language, of its corpus."""

    experiment: str
    corpus: str | None
    """Its folder in FOLDER; None for pocket, which is made."""
    direction: str
    text: str
    """The kind of text that is scored: one of ``TEXTS``."""
    changed: str = ""
    """What is not as the experiment says, one argument."""

    @property
    def name(self) -> str:
        """As a folder is called."""
        return "-".join([self.experiment, self.direction, *self.changed.split("=")[1:]])

    def run(self, data: Path, folder: Path, seed: int) -> Trained:
        """The run of a seed."""
        source, hyphen, target = self.direction.partition("-")
        overrides = [f"experiment={self.experiment}", *filter(None, [self.changed])]
        if self.corpus is not None:
            overrides.append(f"data.root={data / self.corpus}")
        sides = [f"data.source={source}", f"data.target={target}"]
        overrides += [*(sides if hyphen else [f"data.lang={source}"]), f"seed={seed}"]
        return Trained(tuple(overrides), folder / f"{self.name}-{seed}")


WITH_ADAM = (
    "optimizer=adam",
    "optimizer.lr=5e-3",
    "optimizer.weight_decay=0.0",
    "schedule=cosine",
    "schedule.warmup=1000",
    "model.query_key_norm=false",
    "trainer.max_steps=12000",
)
"""What makes multi30k_tiny the experiment that it was before it took Muon."""

PLAIN = "loss=label_smoothed"
"""Without R-Drop, in half the time."""

RESULTS = [
    Result("pocket", None, "en-de", "B"),
    Result("multi30k_tiny", "multi30k", "en-de", "B"),
    Result("multi30k_tiny", "multi30k", "de-en", "B"),
    Result("multi30k_tiny", "multi30k", "en-fr", "B"),
    Result("multi30k_tiny", "multi30k", "en-de", "B", PLAIN),
    Result("multi30k_tiny", "multi30k", "de-en", "B", PLAIN),
    Result("multi30k_tok", "multi30k", "en-de", "A"),
    Result("multi30k_tok", "multi30k", "en-de", "A", PLAIN),
    Result("tanaka_enja", "tanaka_enja", "en-ja", "C"),
    Result("tanaka_enja", "tanaka_enja", "ja-en", "C"),
    *(
        Result("g2p", "g2p", language, "P")
        for language in ("arm_e", "dut", "fre", "hbs_latn", "jpn_hira")
    ),
]


def measured(result: Result, seed: int, run: Trained) -> Measured:
    """What the run of a seed has given."""
    model = load_checkpoint(run.folder).model
    config = model.config
    layers = f"{config.encoder_layers}+{config.decoder_layers}"
    metrics = run.metrics
    best = max if metrics.better(metrics.choose) == "higher" else min
    scores = dict(zip(metrics.tested, run.scores("test"), strict=True))
    kept = [scores[name] for name in dict.fromkeys([metrics.choose, *metrics.validated])]
    return Measured(
        name=result.name,
        seed=seed,
        commit=run.commit,
        machine=run.calls.machine,
        command=command(run),
        model=f"{layers}, {config.d_model}, {config.ffn_dim}",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        updates=run.validated[-1][0],
        hours=round(run.hours, 3),
        validation=best(score for _, score in run.validated),
        scores={score["name"]: score["score"] for score in kept},
        signatures={score["name"]: score["signature"] for score in kept},
    )


def command(run: Trained) -> str:
    """How anyone gets the same run, but for the seed."""
    shown = (
        override for override in run.overrides if not override.startswith(("data.root=", "seed="))
    )
    where = (
        ["data.root=FOLDER"] if any("data.root=" in override for override in run.overrides) else []
    )
    return " ".join(["python train.py", *shown, *where])


def columns(names: Sequence[str]) -> tuple[str, ...]:
    """The head of a table of these scores, that which chooses first."""
    return (
        "experiment",
        "direction",
        "model",
        "parameters",
        *names,
        f"{names[0]} of validation",
        "seeds",
        "updates",
        "hours",
        "machine",
        "commit",
        "command",
    )


def row(result: Result, runs: Sequence[Measured]) -> list[str]:
    """A line of the table: the seeds of a result."""
    scores = [(*run.scores.values(), run.validation) for run in runs]
    hours = statistics.mean(run.hours for run in runs)
    return [
        f"{result.experiment} {result.changed}".strip(),
        result.direction,
        each(run.model for run in runs),
        each(f"{run.parameters / 1e6:.2f} M" for run in runs),
        *(spread(list(values)) for values in zip(*scores, strict=True)),
        seeds(runs),
        each(f"{run.updates:,}" for run in runs),
        f"{hours:.2f}",
        each(run.machine for run in runs),
        each(short(run.commit) for run in runs),
        each(f"`{run.command}`" for run in runs),
    ]


def seeds(runs: Sequence[Any]) -> str:
    """How many, and which."""
    names = ", ".join(str(run.seed) for run in runs)
    return f"{len(runs)} {'seed' if len(runs) == 1 else 'seeds'} ({names})"


def each(values: Iterable[str]) -> str:
    """What the runs have; all of it where they differ."""
    return ", ".join(dict.fromkeys(values))


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
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    parser.add_argument("--processes", type=int, default=1, help="that train at a time: 1")
    parser.add_argument("--threads", type=int, default=2, help="of each: 2")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "results")
    return parser.parse_args()


def missing(arguments: argparse.Namespace) -> dict[Trained, tuple[Result, int]]:
    """The runs that are wanted and not recorded, the first seed of each before the second."""
    data = arguments.data.resolve()
    folder = arguments.folder.resolve()
    recorded = {(record.name, record.seed) for record in RECORDS.read()}
    wanted = [result for result in RESULTS if result.name in arguments.only]
    return {
        result.run(data, folder, seed): (result, seed)
        for seed in arguments.seeds
        for result in wanted
        if (result.name, seed) not in recorded
    }


def table(records: Sequence[Measured]) -> list[str]:
    """The results of which there is a record; a part for each kind of text, with its signatures."""
    lines: list[str] = []
    for text, description in TEXTS.items():
        measured_runs = {
            result: [record for record in records if record.name == result.name]
            for result in RESULTS
            if result.text == text
        }
        rows = [row(result, runs) for result, runs in measured_runs.items() if runs]
        signed = {tuple(run.signatures.items()) for runs in measured_runs.values() for run in runs}
        if rows:
            names = [name for name, _ in min(signed)]
            lines += [f"**{text}**, {description}:", "", *markdown(columns(names), rows), ""]
            for signatures in sorted(signed):
                lines.append(", ".join(f"{name} `{signature}`" for name, signature in signatures))
            lines.append("")
    return lines[:-1]


def summary(records: Sequence[Measured]) -> list[str]:
    """The table of README: experiments as they are, on text whose metric is BLEU."""
    rows = []
    commits: dict[str, list[str]] = {}
    for result in RESULTS:
        runs = [record for record in records if record.name == result.name]
        if not runs or result.changed or result.text not in IN_WORDS:
            continue
        rows.append(
            [
                TEST_SETS[result.corpus],
                IN_WORDS[result.text],
                result.direction,
                each(arguments_of(run) for run in runs),
                *(spread([run.scores[name] for run in runs]) for name in ("BLEU", "chrF2")),
                seeds(runs),
                f"{statistics.mean(run.hours for run in runs):.2f}",
                each(short(run.commit) for run in runs),
            ]
        )
        for run in runs:
            processor = run.machine.replace("(R)", "").replace(" Processor", "")
            commits.setdefault(processor, []).append(short(run.commit))
    if not rows:
        return []
    trained = "`python train.py data.source=S data.target=T`"
    where = "; ".join(f"{machine} ({each(names)})" for machine, names in commits.items())
    said = f"{trained} and the row's arguments, but for pocket `data.root=FOLDER`: {where}."
    return [*markdown(SUMMARY, rows), "", *textwrap.wrap(said, 120)]


def arguments_of(run: Measured) -> str:
    """What its command says beside sides and folder; those of ``WITH_ADAM`` in one word."""
    said = run.command.removeprefix("python train.py ").split()
    shown = [argument for argument in said if not argument.startswith("data.")]
    if not set(WITH_ADAM) <= set(shown):
        return f"`{' '.join(shown)}`"
    return f"`{' '.join(argument for argument in shown if argument not in WITH_ADAM)}`, Adam"


def write(new_records: Sequence[Measured]) -> list[str]:
    """Record the runs, and write both tables; returns that of the page."""
    publish(README, "results", RECORDS, new_records, summary)
    return publish(PAGE, "results", RECORDS, [], table)


def main() -> None:
    """Train what is missing; write the tables of all that is there."""
    arguments = parse()
    runs = missing(arguments)
    for run in train_all(list(runs), processes=arguments.processes, threads=arguments.threads):
        write([measured(*runs[run], run)])
    print("\n".join(write([])))


if __name__ == "__main__":
    main()
