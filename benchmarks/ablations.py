"""What each known help for small corpora gives on the validation text of Multi30k.

    python benchmarks/ablations.py --data-root FOLDER [--updates 5000] [--only NAME…]

Each row is the recipe with one thing changed, in fewer updates than it has of its own, with its
whole schedule in them. Every training makes as many; a ``recipe=`` row is of several, but
bidirectional, whose two share them. No test set is looked at. A training that is finished is not
repeated, so that the command goes on where it was stopped. The p-values are of ``transformer
compare`` against the recipe as it is: they tell whether another text of that kind would say the
same, not whether another seed would, which the rows with other seeds show; of twenty such
comparisons one comes out below 0.05 by chance. With ``--only`` the page stays as it is.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.page import write_between
from benchmarks.trained import ROOT, Chained, Trained, Training, markdown, train_all
from transformer.data.published import MULTI30K

PAGE = ROOT / "docs" / "results.md"
RECIPE = ("experiment=multi30k_tiny", "test=false")
VALIDATIONS = 20
COLUMNS = ("changed", "source", "BLEU", "difference", "p", "hours")


@dataclass(frozen=True)
class Change:
    """What is changed in the recipe, and where it was published.

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
        """As a folder is called."""
        return "_".join(self.shown.replace("=", "-").split()) or "recipe"

    @property
    def shown(self) -> str:
        """The overrides, without files."""
        return " ".join(one for one in self.overrides.split() if "{" not in one)


CHANGES = [
    Change("", ""),
    Change("seed=2", "how much chance does"),
    Change("seed=3", "likewise"),
    Change("callbacks.ema_decay=0", "the weights of the best update alone"),
    Change("callbacks.ema_decay=0", "the mean of ten checkpoints, Vaswani et al. 2017", average=10),
    Change("tokenizer.sampling=0.1", "Provilkov et al. 2020, BPE-dropout"),
    Change("tokenizer=unigram", "Kudo 2018, one segmentation"),
    Change("tokenizer=unigram tokenizer.sampling=0.1", "Kudo 2018, subword regularization"),
    Change("tokenizer.vocab_size=2000", "Ding et al. 2019: small vocabularies for small text"),
    Change("tokenizer.vocab_size=4000", "likewise"),
    Change("tokenizer.vocab_size=10000", "Wu et al. 2021"),
    Change("model.dropout=0.2", "less dropout"),
    Change("model.dropout=0.4", "more dropout"),
    Change("model.source_token_dropout=0.1", "Sennrich et al. 2016"),
    Change("model.target_token_dropout=0.1", "likewise"),
    Change("loss=r_drop", "Liang et al. 2021"),
    Change("loss=simcut", "Gao et al. 2022"),
    Change("model.norm_order=post", "Vaswani et al. 2017"),
    Change("model.encoder_layers=8 model.decoder_layers=2", "Kasai et al. 2021, shallow decoder"),
    Change("data.batch_tokens=4096", "Popel and Bojar 2018: larger batches"),
    Change("schedule=inverse_sqrt", "Vaswani et al. 2017"),
]
CHAINS = [
    Change("recipe=bidirectional", "Ding et al. 2021", last="03_finetune"),
    Change(
        "recipe=distill teachers={teachers}",
        "Kim and Rush 2016, Freitag et al. 2017: learn from three seeds, too",
        last="04_student",
        teachers=("recipe", "seed-2", "seed-3"),
    ),
    Change(
        "recipe=backtranslate monolingual={german}",
        "Sennrich et al. 2016, of the German that the text has",
        last="05_forward",
    ),
]
ROWS = [*CHANGES, *CHAINS]


def training(change: Change, folder: Path, updates: int, data: Path) -> Training:
    """The run of a change, or its runs."""
    common = (
        *RECIPE,
        f"trainer.max_steps={updates}",
        # A third of them, which bidirectional begins with, is more.
        f"schedule.warmup={min(2000, updates // 5)}",
        # Ten checkpoints to average lie as far apart as validations.
        f"trainer.val_check_interval={updates // VALIDATIONS}",
        "callbacks.keep_last=10",
        f"data.root={data}",
    )
    if not change.last:
        return Trained((*common, *change.overrides.split()), folder / change.name)
    teachers = ",".join(str(folder / name) for name in change.teachers)
    german = data / MULTI30K.file_name("de", "train")
    recipe = (
        one.format(teachers=f"[{teachers}]", german=german) for one in change.overrides.split()
    )
    return Chained((*recipe, *common), folder / change.name, change.last)


def chosen(names: Collection[str]) -> list[Change]:
    """The rows of these names, the recipe, and whatever they learn from."""
    teachers = {name for change in ROWS if change.name in names for name in change.teachers}
    return [one for one in ROWS if one.name in {"recipe", *names, *teachers}]


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
    told = json.loads(_verb("compare", *map(str, systems), *how))
    found: list[dict[str, Any]] = told["metrics"][0]["systems"]
    return found


def row(change: Change, run: Training, score: dict[str, Any]) -> list[str]:
    """A line of the table."""
    values = [f"{score['score']:.2f}", "", ""]
    if score["difference"] is not None:
        p = max(score["p_bootstrap"], score["p_randomisation"])
        values[1:] = [f"{score['difference']:+.2f}", f"{p:.3f}"]
    what = " ".join(f"`{one}`" for one in change.shown.split()) or "nothing"
    return [what, change.source, *values, f"{run.hours:.2f}"]


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


def main() -> None:
    """Train what is missing; write the table if it is the whole one."""
    arguments = parse()
    if arguments.updates < VALIDATIONS:
        raise SystemExit(f"--updates must be at least {VALIDATIONS}, the number of validations")
    folder = arguments.folder.resolve() / str(arguments.updates)
    data = arguments.data_root.resolve()
    wanted = chosen(arguments.only)
    runs = {one: training(one, folder, arguments.updates, data) for one in wanted}
    # Teachers before who learns from them.
    for kind in (Trained, Chained):
        train_all(
            list({run.folder: run for run in runs.values() if isinstance(run, kind)}.values()),
            processes=arguments.processes,
            threads=arguments.threads,
        )
    scores = compared([system(change, run.run) for change, run in runs.items()])
    lines = markdown(
        COLUMNS, [row(*each, score) for each, score in zip(runs.items(), scores, strict=True)]
    )
    print("\n".join(lines))
    if wanted == ROWS:
        write_between(PAGE, "ablations", lines)


if __name__ == "__main__":
    main()
