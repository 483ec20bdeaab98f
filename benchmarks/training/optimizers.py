"""Optimizers and what goes with them, on the pocket corpus or Multi30k, by seeds; validation only.

    python benchmarks/training/optimizers.py [--data-root FOLDER] [--only NAME…] [--seeds 1 2 3]

Each row is the experiment with the overrides that the table shows. Without ``--data-root`` it is
``experiment=pocket``; with it ``experiment=multi30k_tiny``, English to German, of the files there.
The score is that of the last validation, not of the best. Only the rows that the choice is between
at the end are tested, once each: the experiment before and now, and with the norm of all heads.

Each training is a line of optimizers.jsonl beside this file, with its validations. A training with
a line is not made again; delete the line and the run directory to repeat it. The table and the
curves are in methods.md; a minute is the share of the whole time, validations included.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.results.results import WITH_ADAM
from benchmarks.support.records import Records, markdown, publish, short
from benchmarks.support.trained import ROOT, Trained, train_all

POCKET = {
    "before": "optimizer=adam optimizer.lr=4e-3 schedule=cosine schedule.warmup=300 "
    "model.query_key_norm=false trainer.max_steps=1200",
    "now": "",
    "all-norm": "model.query_key_norm=true",
    "muon": "trainer.max_steps=650",
    "adam": "optimizer=adam optimizer.lr=6e-3 trainer.max_steps=650",
    "no-norm": "model.query_key_norm=false trainer.max_steps=650",
    "cosine": "schedule=cosine trainer.max_steps=650",
    "momentum": "optimizer.momentum=0.95 trainer.max_steps=650",
    "decay": "optimizer.weight_decay=0.1",
    "ema": "callbacks.ema_decay=0.98 trainer.max_steps=650",
}
"""Pocket before it had Muon, and as it is; those after *muon* change one thing of that row."""
TESTED = ("before", "now", "all-norm")
MUON = (
    "optimizer=muon optimizer.lr=8e-3 schedule=linear schedule.warmup=300 trainer.max_steps=7000 "
)
MULTI30K = {
    "before": " ".join(WITH_ADAM),
    "muon": MUON + "model.query_key_norm=true optimizer.weight_decay=0.0",
    "muon-decay": MUON + "model.query_key_norm=self optimizer.weight_decay=0.1",
    "muon-dropout": MUON + "model.query_key_norm=self optimizer.weight_decay=0.1 model.dropout=0.3",
    "muon-batch": MUON
    + "model.query_key_norm=self optimizer.weight_decay=0.1 data.batch_tokens=2560",
}
"""Before it had Muon; *muon-decay* is as it is now."""
ROWS = {"pocket": POCKET, "multi30k_tiny": MULTI30K}
VALIDATIONS = {"pocket": 130, "multi30k_tiny": 500}
"""Updates from one to the next."""
COLUMNS = (
    "experiment",
    "changed",
    "seeds",
    "BLEU",
    "±",
    "loss",
    "tests",
    "minutes",
    "machine",
    "commit",
)
PAGE = ROOT / "benchmarks" / "training" / "methods.md"


@dataclass(frozen=True)
class Measured:
    """What a training has given.

    Attributes:
        experiment: That is changed.
        name: Of the row.
        seed: Of the training.
        overrides: That the row has beside those of the experiment.
        commit: Of the code that trained it.
        machine: That it was trained on.
        minutes: With validations.
        curve: The validations: updates, BLEU and loss.
        tests: BLEU of each test split, of the rows that are tested.
    """

    experiment: str
    name: str
    seed: int
    overrides: str
    commit: str
    machine: str
    minutes: float
    curve: list[tuple[int, float, float]]
    tests: dict[str, float] = field(default_factory=dict)


RECORDS = Records(Path(__file__).with_suffix(".jsonl"), Measured, ("experiment", "name", "seed"))


def is_tested(experiment: str, name: str) -> bool:
    """Whether the test splits of a row's trainings are scored."""
    return experiment == "pocket" and name in TESTED


def training(experiment: str, name: str, seed: int, folder: Path, data: Path | None) -> Trained:
    """The run of a row with a seed."""
    overrides = (
        f"experiment={experiment}",
        *(() if data is None else (f"data.root={data}",)),
        *ROWS[experiment][name].split(),
        f"trainer.val_check_interval={VALIDATIONS[experiment]}",
        f"seed={seed}",
        f"test={str(is_tested(experiment, name)).lower()}",
        "report=none",
    )
    return Trained(overrides, folder / experiment / f"{name}-{seed}")


def measured(experiment: str, name: str, seed: int, run: Trained) -> Measured:
    """What a finished training has given."""
    return Measured(
        experiment=experiment,
        name=name,
        seed=seed,
        overrides=ROWS[experiment][name],
        commit=run.commit,
        machine=run.calls.machine,
        minutes=round(run.hours * 60, 1),
        curve=[
            (updates, round(values["bleu"], 2), round(values["loss"], 4))
            for updates, values in run.validations
        ],
        tests={
            split: round(run.scores(split)[0]["score"], 2)
            for split in ("test", "test_novel")
            if is_tested(experiment, name)
        },
    )


def _of_row(records: Sequence[Measured], experiment: str, name: str) -> list[Measured]:
    """The trainings of a row with the overrides that it has now."""
    overrides = ROWS[experiment][name]
    return [
        record
        for record in records
        if (record.experiment, record.name, record.overrides) == (experiment, name, overrides)
    ]


def table(records: Sequence[Measured]) -> list[str]:
    """A line for each row: mean and standard deviation of the last validation over seeds."""
    lines = []
    for experiment, rows in ROWS.items():
        for name, overrides in rows.items():
            runs = _of_row(records, experiment, name)
            if not runs:
                continue
            bleu = [run.curve[-1][1] for run in runs]
            spread = f"{statistics.stdev(bleu):.2f}" if len(runs) > 1 else ""
            lines.append(
                [
                    experiment,
                    " ".join(f"`{override}`" for override in overrides.split()) or "nothing",
                    " ".join(str(run.seed) for run in runs),
                    f"{statistics.mean(bleu):.2f}",
                    spread,
                    f"{statistics.mean(run.curve[-1][2] for run in runs):.3f}",
                    tests(runs),
                    f"{statistics.mean(run.minutes for run in runs):.1f}",
                    ", ".join(dict.fromkeys(run.machine for run in runs)),
                    " ".join(dict.fromkeys(short(run.commit) for run in runs)),
                ]
            )
    return [*markdown(COLUMNS, lines), "", *curves(records)] if lines else []


def tests(runs: Sequence[Measured]) -> str:
    """Mean and standard deviation of each test split."""
    texts = []
    for split in runs[0].tests:
        scores = [run.tests[split] for run in runs]
        spread = f" ± {statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
        texts.append(f"{split} {statistics.mean(scores):.2f}{spread}")
    return ", ".join(texts)


def curves(records: Sequence[Measured]) -> list[str]:
    """BLEU after each validation, mean over seeds, and the minute, if an update takes the mean."""
    lines = []
    for experiment, rows in ROWS.items():
        for name in rows:
            runs = _of_row(records, experiment, name)
            points = []
            for validations in zip(*(run.curve for run in runs), strict=True):
                update = validations[0][0]
                minute = statistics.mean(run.minutes * update / run.curve[-1][0] for run in runs)
                bleu = statistics.mean(score for _, score, _ in validations)
                points.append(f"{update:,} ({minute:.1f} min) {bleu:.1f}")
            if points:
                lines.append([f"{experiment}, {name}", "; ".join(points)])
    return markdown(("row", "updates (minutes) BLEU"), lines)


def parse() -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", type=Path, help="train on Multi30k instead of pocket")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows to train")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--processes", type=int, default=2, help="that train at a time: 2")
    parser.add_argument("--threads", type=int, default=1, help="of each: 1")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "optimizers")
    arguments = parser.parse_args()
    known = ROWS["multi30k_tiny" if arguments.data_root else "pocket"]
    for name in arguments.only or ():
        if name not in known:
            parser.error(f"argument --only: {name} is none of {', '.join(known)}")
    return arguments


def main() -> None:
    """Train what is missing; write the table of all that is there."""
    arguments = parse()
    experiment = "multi30k_tiny" if arguments.data_root else "pocket"
    data = arguments.data_root and arguments.data_root.resolve()
    folder = arguments.folder.resolve()
    records = RECORDS.read()
    recorded = {
        (name, record.seed)
        for name in ROWS[experiment]
        for record in _of_row(records, experiment, name)
    }
    runs = {
        training(experiment, name, seed, folder, data): (name, seed)
        for seed in arguments.seeds
        for name in arguments.only or ROWS[experiment]
        if (name, seed) not in recorded
    }
    limits = {"processes": arguments.processes, "threads": arguments.threads}
    for run in train_all(list(runs), **limits):
        publish(PAGE, "optimizers", RECORDS, [measured(experiment, *runs[run], run)], table)
    print("\n".join(publish(PAGE, "optimizers", RECORDS, [], table)))


if __name__ == "__main__":
    main()
