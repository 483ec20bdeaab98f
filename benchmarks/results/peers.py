"""Train toolkits on the same text, subwords, size and updates; score their test sets alike.

    python benchmarks/results/peers.py --data FOLDER [--only ours marian] [--seeds 1]
    python benchmarks/results/peers.py --data FOLDER --eole-python E/bin/python     # with Eole
    python benchmarks/results/peers.py --data FOLDER --only marian --set marian.dropout=0.2

FOLDER has the files of Multi30k: English to German, raw. *ours* is experiment=multi30k_tiny as it
is; the others have its subwords, layers, widths, tokens of a batch, updates and validations, and
settings of their own (marian_training.py and eole_training.py in benchmarks/support), which
``--set`` changes. Validation chooses each checkpoint by BLEU of a beam of five; the test set is
translated once. Minutes are those of training, validations and test, with one thread: the others in
float32, ours as the experiment says. A seed of ours that results.py has trained is not trained
again: it is the same command.

Eole has an environment of its own: python3 -m venv E; E/bin/pip install eole aiohttp (0.6.4 needs
aiohttp, and does not say so). Each run is a line of peers.jsonl beside this file. A run with a line
is not repeated; a training that was stopped goes on.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import results
from benchmarks.results.results import each, seeds, spread
from benchmarks.support.peer import Peer
from benchmarks.support.records import Records, markdown, publish, short
from benchmarks.support.trained import ROOT, Trained, train_all
from transformer.checkpoint.checkpoint import load_checkpoint

PAGE = ROOT / "benchmarks" / "results" / "README.md"
RUN = ("experiment=multi30k_tiny", "data.source=en", "data.target=de")
SAME_RUN = "multi30k_tiny-en-de"
"""What results.py calls it."""
NAMES = {"ours": "this framework", "marian": "Hugging Face, Marian", "eole": "Eole"}
MODULES = {
    "marian": "benchmarks.support.marian_training",
    "eole": "benchmarks.support.eole_training",
}


@dataclass(frozen=True)
class Measured:
    """What a run has given.

    Attributes:
        name: Of the toolkit.
        changed: Its settings that are not the usual ones.
        seed: Of the run.
        commit: Of the code that called it.
        machine: That it was trained on.
        parameters: How many.
        updates: How many.
        minutes: Training, validations and test.
        validation: The best BLEU.
        scores: BLEU and chrF2 of the test set.
        signatures: Of these.
    """

    name: str
    changed: str
    seed: int
    commit: str
    machine: str
    parameters: int
    updates: int
    minutes: float
    validation: float
    scores: dict[str, float]
    signatures: dict[str, str]


RECORDS = Records(
    Path(__file__).with_suffix(".jsonl"), Measured, key=("name", "changed", "updates", "seed")
)


def training(
    name: str,
    run: Sequence[str],
    folder: Path,
    seed: int,
    own: Sequence[str] = (),
) -> Trained | Peer:
    """The run of a seed.

    Args:
        name: Of the toolkit.
        run: Overrides of our run, which says text, size and updates.
        folder: Of all runs.
        seed: Of this one.
        own: Settings of the other toolkit, ``NAME.KEY=VALUE``.
    """
    overrides = (*run, f"seed={seed}")
    place = folder / "-".join([name, *(one.partition(".")[2] for one in own), str(seed)])
    if name == "ours":
        return Trained(overrides, place)
    return Peer((*overrides, *own), place, MODULES[name])


def measured(name: str, changed: str, seed: int, run: Trained | Peer) -> Measured:
    """What the run of a seed has given."""
    if isinstance(run, Trained):
        model = load_checkpoint(run.folder).model
        parameters = sum(parameter.numel() for parameter in model.parameters())
        scored = [score for score in run.scores("test") if score["name"] in ("BLEU", "chrF2")]
        scores = {score["name"]: score["score"] for score in scored}
        signatures = {score["name"]: score["signature"] for score in scored}
        validations = run.validated
    else:
        outcome = run.outcome
        parameters, validations = outcome.parameters, outcome.validations
        scores, signatures = outcome.scores, outcome.signatures
    return Measured(
        name=name,
        changed=changed,
        seed=seed,
        commit=run.commit,
        machine=run.calls.machine,
        parameters=parameters,
        updates=validations[-1][0],
        minutes=round(run.hours * 60, 1),
        validation=round(max(score for _, score in validations), 2),
        scores=scores,
        signatures=signatures,
    )


def of_results(run: results.Measured) -> Measured:
    """A line of results.py as one of this table."""
    return Measured(
        name="ours",
        changed="",
        seed=run.seed,
        commit=run.commit,
        machine=run.machine,
        parameters=run.parameters,
        updates=run.updates,
        minutes=round(run.hours * 60, 1),
        validation=round(run.validation, 2),
        scores=run.scores,
        signatures=run.signatures,
    )


COLUMNS = (
    "toolkit",
    "changed",
    "parameters",
    "BLEU",
    "chrF2",
    "BLEU of validation",
    "minutes",
    "updates",
    "seeds",
    "machine",
    "commit",
)


def table(records: Sequence[Measured]) -> list[str]:
    """A line for the seeds of each toolkit and its settings."""
    rows = []
    for key in dict.fromkeys((run.name, run.changed, run.updates) for run in records):
        runs = [run for run in records if (run.name, run.changed, run.updates) == key]
        rows.append(
            [
                NAMES[runs[0].name],
                f"`{runs[0].changed}`" if runs[0].changed else "",
                each(f"{run.parameters / 1e6:.2f} M" for run in runs),
                *(spread([run.scores[name] for run in runs]) for name in ("BLEU", "chrF2")),
                spread([run.validation for run in runs]),
                f"{statistics.mean(run.minutes for run in runs):.0f}",
                f"{runs[0].updates:,}",
                seeds(runs),
                each(run.machine for run in runs),
                each(short(run.commit) for run in runs),
            ]
        )
    signed = {", ".join(f"{k} `{v}`" for k, v in run.signatures.items()) for run in records}
    return [*markdown(COLUMNS, rows), "", *sorted(signed)] if rows else []


def parse() -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(NAMES), metavar="NAME")
    parser.add_argument("--eole-python", type=Path, metavar="PATH")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME.KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    parser.add_argument("--processes", type=int, default=1, help="that train at a time: 1")
    parser.add_argument("--threads", type=int, default=1, help="of each: 1")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "peers")
    arguments = parser.parse_args()
    if arguments.only is None:
        arguments.only = [name for name in NAMES if name != "eole" or arguments.eole_python]
    if "eole" in arguments.only and arguments.eole_python is None:
        parser.error("eole needs --eole-python, the Python of an environment that has it")
    return arguments


def main() -> None:
    """Train what is missing; write the table of all that is there."""
    arguments = parse()
    run = (*RUN, f"data.root={arguments.data.resolve()}")
    if "ours" in arguments.only:
        known = {run.seed for run in RECORDS.read() if run.name == "ours"}
        trained = [run for run in results.RECORDS.read() if run.name == SAME_RUN]
        new = [run for run in trained if run.seed in {*arguments.seeds} - known]
        publish(PAGE, "peers", RECORDS, map(of_results, new), table)
    recorded = {(record.name, record.changed, record.seed) for record in RECORDS.read()}
    runs = {}
    for seed in arguments.seeds:
        for name in arguments.only:
            own = [one for one in arguments.set if one.startswith(f"{name}.")]
            changed = " ".join(own)
            if (name, changed, seed) in recorded:
                continue
            where = [f"eole.python={arguments.eole_python.absolute()}"] if name == "eole" else []
            peer = training(name, run, arguments.folder.resolve(), seed, own)
            if where and isinstance(peer, Peer):
                peer = Peer((*peer.overrides, *where), peer.folder, peer.module)
            runs[peer] = (name, changed, seed)
    for one in train_all(list(runs), processes=arguments.processes, threads=arguments.threads):
        publish(PAGE, "peers", RECORDS, [measured(*runs[one], one)], table)
    print("\n".join(publish(PAGE, "peers", RECORDS, [], table)))


if __name__ == "__main__":
    main()
