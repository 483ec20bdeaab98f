"""Train methods for small corpora, one change at a time; scores on Multi30k's validation text.

    python benchmarks/results/ablations.py --data-root FOLDER [--updates 5000] [--only NAME…]

Each row is the experiment without its R-Drop, which takes twice as long, with one thing changed, in
fewer updates than its own file has, with its whole schedule in them. Every training makes as many;
a ``recipe=`` row has several trainings. No test set is used.
The p-values are of ``transformer compare`` against the first row: they tell whether another text of
that kind would give the same result, not whether another seed would; for that there are rows with
other seeds. Of twenty such comparisons one is below 0.05 by chance.

Each result is a line of ablations.jsonl beside this file. A row with a line is not trained again;
delete the line and the run directory to repeat it. The first row is always trained if its run is
missing, since the others are compared with it, and it must reach its BLEU in the table.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results.results import WITH_ADAM
from benchmarks.support.records import Records, markdown, publish, short
from benchmarks.support.trained import ROOT, Chained, Trained, Training, train_all
from transformer.checkpoint.run_directory import is_finished
from transformer.common.errors import InputError
from transformer.data.corpora.catalog import PUBLISHED, find


@dataclass(frozen=True)
class Change:
    """What is changed in the experiment, and where it was published.

    Attributes:
        overrides: Arguments of train.py; of ``transformer`` if the first is ``recipe=NAME``, with
            ``{teachers}`` and ``{german}`` for files.
        source: Where it was published.
        average: Score the mean of so many of the newest checkpoints; 0 the best one.
        last: The folder of the last training of a ``recipe=``.
        teachers: The names of the rows whose models it learns from.
    """

    overrides: str
    source: str
    average: int = 0
    last: str = ""
    teachers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the row."""
        return f"{self.folder}_average-{self.average}" if self.average else self.folder

    @property
    def folder(self) -> str:
        """Where it is trained; two rows may be of one training."""
        return "_".join(self.shown.replace("=", "-").split()) or "baseline"

    @property
    def shown(self) -> str:
        """The overrides, without files."""
        return " ".join(override for override in self.overrides.split() if "{" not in override)


CHANGES = [
    Change("", ""),
    Change("seed=2", "how much chance does"),
    Change("seed=3", "likewise"),
    Change("callbacks.ema_decay=0", "the weights of the best update alone"),
    Change("callbacks.ema_decay=0", "the mean of ten checkpoints, Vaswani et al. 2017", average=10),
    Change("model.dropout=0.3", "more dropout"),
    Change("tokenizer.vocab_size=4000", "Ding et al. 2019: small vocabularies for small text"),
    Change("tokenizer.vocab_size=16000", "a larger vocabulary; Ding et al. 2019"),
    Change("loss=r_drop", "Liang et al. 2021"),
    Change("model.source_token_dropout=0.1", "Sennrich et al. 2016"),
    Change("model.target_token_dropout=0.1", "likewise"),
    Change("model.encoder_layers=8 model.decoder_layers=2", "Kasai et al. 2021, shallow decoder"),
    Change("tokenizer.sampling=0.1", "Provilkov et al. 2020, BPE-dropout"),
]
CHAINS = [
    Change(
        "recipe=distill teachers={teachers}",
        "Kim and Rush 2016, Freitag et al. 2017: learn from three seeds, too",
        last="04_student",
        teachers=("baseline", "seed-2", "seed-3"),
    ),
    Change(
        "recipe=backtranslate monolingual={german}",
        "Sennrich et al. 2016, of the German that the text has",
        last="05_forward",
    ),
]
ROWS = [*CHANGES, *CHAINS]


def chosen(names: Collection[str]) -> list[Change]:
    """The rows of these names, and if there are any, the baseline and what they learn from."""
    if not names:
        return []
    teachers = {name for change in ROWS if change.name in names for name in change.teachers}
    return [one for one in ROWS if one.name in {"baseline", *names, *teachers}]


PAGE = ROOT / "benchmarks" / "results" / "README.md"
EXPERIMENT = ("experiment=multi30k_tiny", *WITH_ADAM, "test=false")
"""With Adam, as all rows were trained."""
ONE_PASS = "loss=label_smoothed"
"""Without R-Drop, which takes twice as long."""
VALIDATIONS = 20
BASE = ROWS[0].name
COLUMNS = ("changed", "source", "updates", "BLEU", "difference", "p", "hours", "machine", "commit")


@dataclass(frozen=True)
class Measured:
    """What a row has given.

    Attributes:
        name: Of the row.
        updates: Of each of its trainings.
        commit: Of the code that trained it.
        machine: That it was trained on.
        bleu: On validation.
        signature: Of that score.
        difference: To the experiment.
        p: Of the less sure of two tests.
        hours: All its trainings, those that it learns from left out.
    """

    name: str
    updates: int
    commit: str
    machine: str
    bleu: float
    signature: str
    difference: float | None
    p: float | None
    hours: float


RECORDS = Records(PAGE.with_name("ablations.jsonl"), Measured, key=("name", "updates"))


def training(change: Change, folder: Path, updates: int, data: Path) -> Training:
    """The run of a change, or its runs."""
    losses = () if "loss=" in change.overrides else (ONE_PASS,)
    common = (
        *EXPERIMENT,
        *losses,
        f"trainer.max_steps={updates}",
        f"schedule.warmup={min(1000, updates // 5)}",
        # Ten checkpoints to average lie as far apart as validations.
        f"trainer.val_check_interval={updates // VALIDATIONS}",
        "callbacks.keep_last=10",
        f"data.root={data}",
    )
    if not change.last:
        return Trained((*common, *change.overrides.split()), folder / change.folder)
    teachers = ",".join(str(folder / name) for name in change.teachers)
    german = find(PUBLISHED["multi30k"], "de", "train", data)
    recipe = (
        one.format(teachers=f"[{teachers}]", german=german) for one in change.overrides.split()
    )
    return Chained((*recipe, *common), folder / change.folder, change.last)


def system(change: Change, run: Path) -> Path:
    """What is compared: the run, or the mean of its newest checkpoints."""
    if not change.average:
        return run
    mean = run / "checkpoints" / f"average-{change.average}.ckpt"
    newest = run / "checkpoints" / "last.ckpt"
    if not mean.exists() or mean.stat().st_mtime < newest.stat().st_mtime:
        _verb("average", f"checkpoint={run}", f"last={change.average}", f"output={mean}")
    return mean


def compared(systems: list[Path]) -> list[dict[str, Any]]:
    """BLEU of each on validation, and how sure its difference to the first is."""
    how = ("scores=[bleu]", "training=false", "moved=0")
    report = json.loads(_verb("compare", *map(str, systems), *how))
    [bleu] = report["metrics"]
    return [{**system, "signature": bleu["signatures"]["score"]} for system in bleu["systems"]]


def alone(run: Path) -> dict[str, Any]:
    """BLEU on validation of the experiment where nothing is compared with it."""
    scores = json.loads(_verb("evaluate", f"checkpoint={run}", "split=validation"))
    [bleu] = [score for score in scores if score["name"] == "BLEU"]
    return {**bleu, "difference": None}


def measured(change: Change, run: Training, score: Mapping[str, Any], updates: int) -> Measured:
    """What a row has given."""
    compared = score["difference"] is not None
    return Measured(
        name=change.name,
        updates=updates,
        commit=run.commit,
        machine=run.calls.machine,
        bleu=score["score"],
        signature=score["signature"],
        difference=score["difference"],
        p=max(score["p_bootstrap"], score["p_randomization"]) if compared else None,
        hours=round(run.hours, 3),
    )


def row(change: Change, result: Measured) -> list[str]:
    """A line of the table."""
    changed = " ".join(f"`{override}`" for override in change.shown.split()) or "nothing"
    difference = "" if result.difference is None else f"{result.difference:+.2f}"
    p = "" if result.p is None else f"{result.p:.3f}"
    numbers = (f"{result.updates:,}", f"{result.bleu:.2f}", difference, p, f"{result.hours:.2f}")
    return [changed, change.source, *numbers, result.machine, short(result.commit)]


def _verb(*arguments: str) -> str:
    command = [sys.executable, "-m", "transformer", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
    return done.stdout


def parse() -> Any:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(change.name for change in ROWS))
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", default=names)
    parser.add_argument("--processes", type=int, default=2, help="that train at a time: 2")
    parser.add_argument("--threads", type=int, default=1, help="of each: 1")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablations")
    return parser.parse_args()


def trained(
    runs: Mapping[Change, Training], processes: int, threads: int
) -> Iterator[dict[Change, Training]]:
    """Train what is missing, teachers before their students; yield the rows that are trained.

    Nothing is yielded before the baseline is trained, with which all are compared.
    """
    base = _base(runs)
    done = dict[Change, Training]()
    for kind in (Trained, Chained):
        missing = {run.folder: run for run in runs.values() if isinstance(run, kind)}
        for run in train_all(list(missing.values()), processes=processes, threads=threads):
            for change, candidate in runs.items():
                if candidate.folder == run.folder:
                    done[change] = candidate
            if is_finished(base.run):
                yield done
                done = {}


def _base(runs: Mapping[Change, Training]) -> Training:
    return next(run for change, run in runs.items() if change.name == BASE)


def measure(rows: Mapping[Change, Training], base: Training, updates: int) -> list[Measured]:
    """The results of rows, compared with the baseline.

    Raises:
        SystemExit: The baseline has another BLEU than the one that earlier rows were compared with.
    """
    others = {change: run for change, run in rows.items() if change.name != BASE}
    systems = [system(change, run.run) for change, run in others.items()]
    recorded = [
        record for record in RECORDS.read() if (record.name, record.updates) == (BASE, updates)
    ]
    if recorded and not others:
        return []
    scores = compared([base.run, *systems]) if systems else [alone(base.run)]
    for record in recorded:
        # Alone, it is known to two decimals.
        if round(record.bleu, 2) != round(scores[0]["score"], 2):
            raise SystemExit(
                f"{base.folder} has {scores[0]['score']:.2f} BLEU, and {record.bleu:.2f} in "
                f"{RECORDS.path}; take all lines of {updates} updates out to measure them again"
            )
    compared_runs = [(ROWS[0], base), *others.items()]
    return [
        measured(change, run, score, updates)
        for (change, run), score in zip(compared_runs, scores, strict=True)
    ]


def table(records: Sequence[Measured]) -> list[str]:
    """The rows of which there is a record, and the signatures of their scores."""
    rows = [
        row(change, record) for change in ROWS for record in records if record.name == change.name
    ]
    return [*markdown(COLUMNS, rows), "", *sorted({f"`{record.signature}`" for record in records})]


def main() -> None:
    """Train what is missing; write the table of all that is there."""
    arguments = parse()
    updates = arguments.updates
    if updates < VALIDATIONS:
        raise SystemExit(f"--updates must be at least {VALIDATIONS}, the number of validations")
    recorded = {record.name for record in RECORDS.read() if record.updates == updates}
    folder = arguments.folder.resolve() / str(updates)
    data = arguments.data_root.resolve()
    wanted = chosen(set(arguments.only) - recorded)
    try:
        runs = {change: training(change, folder, updates, data) for change in wanted}
    except InputError as error:
        raise SystemExit(str(error)) from None
    if runs:
        for rows in trained(runs, arguments.processes, arguments.threads):
            records = measure(rows, _base(runs), updates)
            publish(PAGE, "ablations", RECORDS, records, table)
    print("\n".join(publish(PAGE, "ablations", RECORDS, [], table)))


if __name__ == "__main__":
    main()
