"""Train on the text of Wu et al. 2021, as they do and as we do, and score as they do.

    python benchmarks/results/wu2021.py --data FOLDER [--seeds 1 2 3] [--only NAME…]

"Good for Misconceived Reasons", https://aclanthology.org/2021.acl-long.480. FOLDER is
data/multi30k-en-de of a clone of https://github.com/LividWo/Revisit-MMT, commit dc368d0: words of
Multi30k, tokenized and lower-cased, cut into subwords ("@@ "). Nothing is downloaded.

*theirs* has the settings of their README-baseline.md and evaluate.sh; its tests are scored with the
mean of the last ten checkpoints, and with the one that validation chooses. *ours* is
experiment=multi30k_tiny on the same subwords. Each run is a line of wu2021.jsonl beside this file.
A run with a line is not repeated; a training that was stopped goes on.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics import BLEU

from benchmarks.results.results import each, seeds, spread
from benchmarks.support.records import Records, markdown, publish, short
from benchmarks.support.trained import ROOT, Trained, train_all
from transformer import AverageConfig, Translator, average

PAGE = ROOT / "benchmarks" / "results" / "README.md"
TESTS = {"test.2016": "test 2016", "test.2017": "test 2017", "test.coco": "COCO"}
"""Their files, and how a table calls them."""
AVERAGED = 10
EPOCH = 58
"""Updates, about (measured: between 57.1 and 58.8); they save, and validate, after each."""
TEXT = (
    "experiment=multi30k_tiny",
    "data=files",
    "data.source=en",
    "data.target=de",
    "data.train=[{0}/train.en,{0}/train.de]",
    "data.validation=[{0}/valid.en,{0}/valid.de]",
    "data.test=[{0}/test.2016.en,{0}/test.2016.de]",
    "data.deduplicate=false",
    "tokenizer=words",
    "tokenizer.vocab_size=null",
    "metrics.custom=benchmarks.results.wu2021:bleu_of_words",
    "metrics.choose=custom",
    "test=false",
)
SETTINGS: dict[str, tuple[str, ...]] = {
    "theirs": (
        "optimizer=adam",
        "optimizer.lr=5e-3",
        "optimizer.weight_decay=0.0",
        "model.query_key_norm=false",
        "loss=label_smoothed",
        "model.norm_order=post",
        "model.positions=fairseq",
        "model.dropout=0.3",
        "precision=32-true",
        "loss.bfloat16=false",
        "data.batch_tokens=8192",
        "schedule=inverse_sqrt",
        "schedule.warmup=2000",
        "optimizer.eps=1e-8",
        "trainer.gradient_clip_val=25",
        "trainer.max_steps=8000",
        f"trainer.val_check_interval={EPOCH}",
        "callbacks.ema_decay=0",
        f"callbacks.keep_last={AVERAGED}",
        "callbacks.patience=10",
        "decoding.length_penalty_form=average",
        "decoding.stopping=full",
    ),
    "ours": (),
}
"""What is changed in the experiment."""


@dataclass(frozen=True)
class Measured:
    """What a run has given.

    Attributes:
        name: Of its settings.
        averaged: So many of its last checkpoints; 0: the one that validation has chosen.
        seed: Of the run.
        commit: Of the code that trained it.
        machine: That it was trained on.
        updates: How many.
        hours: Training and validation.
        validation: The best BLEU there, of words.
        fairseq: Their metric on each test.
        bleu: That of sacreBLEU.
        signature: Of the latter.
    """

    name: str
    averaged: int
    seed: int
    commit: str
    machine: str
    updates: int
    hours: float
    validation: float
    fairseq: dict[str, float]
    bleu: dict[str, float]
    signature: str


RECORDS = Records(Path(__file__).with_suffix(".jsonl"), Measured, key=("name", "averaged", "seed"))


def words(line: str) -> str:
    """A line with its subwords joined, as fairseq's ``--remove-bpe`` does."""
    return f"{line} ".replace("@@ ", "").rstrip()


def bleu_of_words(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """BLEU of subwords that are joined first: the metric that chooses checkpoints."""
    joined = [words(reference) for reference, *_ in references]
    return _bleu("exp").corpus_score(list(map(words, hypotheses)), [joined]).score


def fairseq_bleu(
    hypotheses: Sequence[str], references: Sequence[str], vocabulary: set[str]
) -> float:
    """The metric of Wu et al.: that of fairseq's ``generate.py`` without ``--sacrebleu``.

    BLEU of the words of a test, as they are, without smoothing (bleu.py there). A subword of a
    reference that the training text does not have matches nothing.
    """
    known = [
        " ".join(subword if subword in vocabulary else "<<unk>>" for subword in line.split())
        for line in references
    ]
    score = _bleu("none").corpus_score(list(map(words, hypotheses)), [list(map(words, known))])
    return score.score


def _bleu(smoothing: str) -> BLEU:
    # force: the words stand apart already, which sacreBLEU would warn of.
    return BLEU(tokenize="none", smooth_method=smoothing, force=True)


def training(name: str, data: Path, folder: Path, seed: int, more: Sequence[str] = ()) -> Trained:
    """The run of a seed."""
    text = (override.format(data) for override in TEXT)
    overrides = (*text, *SETTINGS[name], *more, f"seed={seed}")
    return Trained(overrides, folder / f"{name}-{seed}")


def measured(name: str, seed: int, run: Trained, data: Path) -> list[Measured]:
    """The chosen checkpoint of a run on each test; of *theirs* the mean of the last ones, too."""
    results = [_scored(name, seed, run, data, run.folder, averaged=0)]
    if name == "theirs":
        config = AverageConfig(
            checkpoint=run.folder,
            last=AVERAGED,
            output=run.folder / "checkpoints" / f"average-{AVERAGED}.ckpt",
        )
        results.append(_scored(name, seed, run, data, average(config).file, averaged=AVERAGED))
    return results


def _scored(
    name: str, seed: int, run: Trained, data: Path, checkpoint: Path, averaged: int
) -> Measured:
    lines = [(data / f"train.{side}").read_text("utf-8").split() for side in ("en", "de")]
    vocabulary = {subword for side in lines for subword in side}
    translator = Translator.load(checkpoint)
    fairseq, bleu = {}, {}
    for test in TESTS:
        sources, references = (
            (data / f"{test}.{side}").read_text("utf-8").splitlines() for side in ("en", "de")
        )
        hypotheses = [translation.text for translation in translator.translate(sources)]
        fairseq[test] = round(fairseq_bleu(hypotheses, references, vocabulary), 2)
        bleu[test] = round(bleu_of_words(hypotheses, [(line,) for line in references]), 2)
    metric = _bleu("exp")
    metric.corpus_score(["a"], [["a"]])
    return Measured(
        name=name,
        averaged=averaged,
        seed=seed,
        commit=run.commit,
        machine=run.calls.machine,
        updates=run.validated[-1][0],
        hours=round(run.hours, 3),
        validation=round(max(score for _, score in run.validated), 2),
        fairseq=fairseq,
        bleu=bleu,
        signature=str(metric.get_signature()),
    )


COLUMNS = (
    "settings",
    "checkpoint",
    *(f"{test}, fairseq's BLEU" for test in TESTS.values()),
    *(f"{test}, sacreBLEU" for test in TESTS.values()),
    "BLEU of validation",
    "seeds",
    "updates",
    "hours",
    "machine",
    "commit",
)


def table(records: Sequence[Measured]) -> list[str]:
    """A line for all seeds of settings and a checkpoint; the published figure is the first."""
    rows = [["Wu et al. 2021", "mean of ten", "41.02", *[""] * (len(COLUMNS) - 3)]]
    for name, averaged in dict.fromkeys((run.name, run.averaged) for run in records):
        runs = [run for run in records if (run.name, run.averaged) == (name, averaged)]
        rows.append(
            [
                name,
                "mean of ten" if averaged else "chosen by validation",
                *(spread([run.fairseq[test] for run in runs]) for test in TESTS),
                *(spread([run.bleu[test] for run in runs]) for test in TESTS),
                spread([run.validation for run in runs]),
                seeds(runs),
                each(f"{run.updates:,}" for run in runs),
                f"{statistics.mean(run.hours for run in runs):.2f}",
                each(run.machine for run in runs),
                each(short(run.commit) for run in runs),
            ]
        )
    return [
        *markdown(COLUMNS, rows),
        *sorted({f"\nsacreBLEU `{run.signature}`" for run in records}),
    ]


def parse() -> argparse.Namespace:
    """The call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--only", nargs="+", choices=list(SETTINGS), metavar="NAME", default=list(SETTINGS)
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="SEED")
    parser.add_argument("--processes", type=int, default=1, help="that train at a time: 1")
    parser.add_argument("--threads", type=int, default=1, help="of each: 1")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "wu2021")
    return parser.parse_args()


def main() -> None:
    """Train what is missing; write the table of all that is there."""
    arguments = parse()
    data = arguments.data.resolve()
    recorded = {(record.name, record.seed) for record in RECORDS.read()}
    runs = {
        training(name, data, arguments.folder.resolve(), seed): (name, seed)
        for seed in arguments.seeds
        for name in arguments.only
        if (name, seed) not in recorded
    }
    for run in train_all(list(runs), processes=arguments.processes, threads=arguments.threads):
        publish(PAGE, "wu2021", RECORDS, measured(*runs[run], run, data), table)
    print("\n".join(publish(PAGE, "wu2021", RECORDS, [], table)))


if __name__ == "__main__":
    main()
