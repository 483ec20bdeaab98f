"""Speed of training beside Hugging Face's Marian and torch.nn.Transformer in plain loops.

    python benchmarks/training/speed.py --data-root FOLDER [--quick] [--threads 2] [--write PAGE]

All train on English to German of Multi30k in FOLDER, with the same batches (sorted by length, so
many tokens with padding on the longer side), sizes, optimizer, schedule and loss, each in its own
process, in turns. Numbers are real target tokens a second, medians over the turns;
± is half of the distance from the slowest turn to the fastest, as a share of the median; memory is
what a process has had resident at most until its last timed turn.

``ours`` is a run as ``train.py`` makes it, with all that is fast: ``precision=bf16-mixed
loss.bfloat16=true``. ``float32`` multiplies in float32 throughout. ``kept`` says whether freed
memory is kept (``keep_memory``): ours is by default; for the others it is three lines that their
users do not have, so that they are measured both ways. ``--quick`` leaves out torch's bfloat16, and
most of what is measured the other way. ``eager`` is Hugging Face's own formula of attention, which
its users have to ask for: on a CPU in bfloat16 it is faster than torch's fused kernel.

``products`` is how long the matrix products of our updates take alone, in the same shapes and
dtypes, measured right after each turn, as a share of the turn (of one thread: both in the time that
it computes); ``--alone`` measures only ours.

``loss`` is the mean of the last 50 of ``--updates`` updates, label smoothing included. Hugging
Face's model begins with our weights; ``loss_difference`` is how far our loss is above its, as a
share. The last line of stdout is JSON; ``ratio_hf`` compares with the faster of Hugging Face's two
without kept memory, ``ratio_hf_kept`` with it, ``ratio_hf_eager`` with the formula of attention.
"""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.table import Table

from benchmarks.support.records import UNKNOWN, code_version, machine, short, write_between
from benchmarks.support.training_process import MOST, NAMES, Subject
from transformer.reports.scores import table_console

BUDGETS = {"tiny": 4096, "base": 2048}
EOLE = 1.25
"""Times Hugging Face's bfloat16: what Eole 0.6.4, the fastest in bfloat16 at base size, reached."""
RATES = {"tiny": "1e-3", "base": "3e-4"}
"""Of learning: at 1e-3 a base model that normalizes after its sublayers does not begin to learn,
and what its loss comes to is chance."""
CHUNKS = {"tiny": 512, "base": 2048}
"""Rows of logits that we have at a time (``loss.chunk``); the others have all."""
LAST = 50
TURN = {"tiny": 8, "base": 3}
QUICK_TURN = {"tiny": 3, "base": 1}
WARM_UP = {"tiny": 20, "base": 6}
"""Updates in which a process meets new shapes, asks for memory that it keeps, and is slower."""
COMPARED = ("ours_bfloat16", "hf_float32")
"""Whose loss is compared, from the same first weights: what is fast, and what is plain."""
COLUMNS = (
    "framework",
    "precision",
    "kept",
    "tokens/s",
    "±",
    "times",
    "peak MiB",
    "products",
    "loss",
)


def subjects(size: str, quick: bool, alone: bool = False) -> list[list[Subject]]:
    """Whom to measure: the first is what all are compared with.

    All of a list are in memory at once and take turns; together they would not fit in 24 GB.
    """
    first = [Subject("ours", "bfloat16", True), Subject("ours", "float32", True)]
    if alone:
        return [first]
    first += [Subject("hf", precision, False) for precision in ("float32", "bfloat16")]
    first.append(Subject("torch", "float32", False))
    if quick:
        return [[*first, Subject("hf", "float32", True)] if size == "tiny" else first]
    first.append(Subject("hf_eager", "bfloat16", False))
    later = [Subject("hf", "bfloat16", True), Subject("torch", "bfloat16", False)]
    later += [Subject("torch", "float32", True)]
    later += [Subject("ours", precision, False) for precision in ("bfloat16", "float32")]
    if size == "tiny":
        later.append(Subject("hf", "float32", True))
    return [first, later]


def common(data: Path, size: str) -> list[str]:
    """The run that all of them make."""
    return [
        "data=multi30k",
        "~experiment",
        f"data.root={data}",
        f"data.batch_tokens={BUDGETS[size]}",
        f"model={size}",
        "model.norm_order=post",
        "model.dropout=0.3",
        "tokenizer.vocab_size=8000",
        f"optimizer.lr={RATES[size]}",
        "schedule=inverse_sqrt",
        "schedule.warmup=100",
        "trainer.max_steps=1000000",
        "trainer.val_check_interval=1000000",
        "logger.csv=false",
        "logger.tensorboard=false",
        f"loss.chunk={CHUNKS[size]}",
    ]


def prepare(size: str, arguments: argparse.Namespace) -> None:
    """Let the text be encoded once, for all."""
    (arguments.folder / size).mkdir(parents=True, exist_ok=True)
    subject = Subject("hf", "float32", False)
    settings = common(arguments.data_root, size)
    subject.start(arguments.folder / size, settings, arguments.threads)
    subject.ready()
    subject.end()


def measure(group: list[Subject], size: str, arguments: argparse.Namespace) -> None:
    """Let them train in turns, and note how fast each is; they wait for more."""
    folder = arguments.folder / size
    settings = common(arguments.data_root, size)
    for subject in group:
        subject.start(folder, settings, arguments.threads)
    for subject in group:
        subject.ready()
    for subject in group:
        subject.update(WARM_UP[size])
    each = arguments.updates_of_a_turn[size]
    for turn in range(arguments.turns):
        for subject in group:
            answer = subject.update(each)
            subject.speeds.append(answer["tokens"] / answer["seconds"])
            if subject.framework == "ours":
                subject.shares.append(subject.products() / answer["computing"])
            subject.peak = answer["peak"]
        print(f"{size}: turn {turn + 1} of {arguments.turns}", file=sys.stderr, flush=True)


def learn(group: list[Subject], size: str, updates: int) -> None:
    """Let some of them train on, for their loss; all end."""
    for subject in sorted(group, key=lambda member: member.key in COMPARED):
        if updates > subject.done + LAST and subject.key in COMPARED:
            subject.update(updates - LAST - subject.done)
            subject.loss = subject.update(LAST)["loss"]
            print(f"{size}: {subject.key} has made {updates} updates", file=sys.stderr)
        subject.end()


def show(measured: list[Subject], title: str) -> list[str]:
    """The table on stderr; returns it as Markdown."""
    fastest = measured[0].speed
    rows = [
        [
            NAMES[subject.framework],
            subject.precision,
            "yes" if subject.kept else "no",
            f"{subject.speed:,.0f}",
            f"{subject.spread:.0%}",
            f"{fastest / subject.speed:.2f}",
            f"{subject.peak:,.0f}",
            "" if subject.share is None else f"{subject.share:.0%}",
            "" if subject.loss is None else f"{subject.loss:.3f}",
        ]
        for subject in measured
    ]
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 3 else "right")
    for row in rows:
        table.add_row(*row)
    table_console().print(table)
    lines = [f"| {' | '.join(row)} |" for row in [COLUMNS, ["---"] * len(COLUMNS), *rows]]
    return [f"{title}:", "", *lines, ""]


def summary(measured: list[Subject], size: str) -> dict[str, float]:
    """A size in the last line: what is promised first, then all speeds and losses."""
    speeds = {subject.key: subject.speed for subject in measured}
    values = (compared(speeds, size) if "hf_float32" in speeds else {}) | speeds
    values |= {
        f"products_{subject.key}": subject.share
        for subject in measured
        if subject.share is not None
    }
    losses = {
        f"loss_{subject.key}": subject.loss for subject in measured if subject.loss is not None
    }
    values |= losses
    if len(losses) == len(COMPARED):
        mine, theirs = (losses[f"loss_{key}"] for key in COMPARED)
        values["loss_difference"] = mine / theirs - 1
    digits = {"loss_difference": 5}
    return {name: round(value, digits.get(name, 3)) for name, value in values.items()}


def compared(speeds: dict[str, float], size: str) -> dict[str, float]:
    """How many times as fast as the others we are."""
    ours = speeds["ours_bfloat16"]
    hugging_face, torch = (
        max(
            speed for key, speed in speeds.items() if key in (f"{name}_float32", f"{name}_bfloat16")
        )
        for name in ("hf", "torch")
    )
    values = {
        "ours": ours,
        "hf": hugging_face,
        "torch": torch,
        "ratio_hf": ours / hugging_face,
        "ratio_hf_float32": ours / speeds["hf_float32"],
        "ratio_torch_in_float32": speeds["ours_float32"] / speeds["torch_float32"],
    }
    if size == "base":
        values["ratio_eole_bfloat16"] = ours / (EOLE * speeds["hf_bfloat16"])
    kept = [speeds[key] for key in ("hf_float32_kept", "hf_bfloat16_kept") if key in speeds]
    if kept:
        values["ratio_hf_kept"] = ours / max(kept)
    if "hf_eager_bfloat16" in speeds:
        values["ratio_hf_eager"] = ours / speeds["hf_eager_bfloat16"]
    if "torch_float32_kept" in speeds:
        values["ratio_torch_kept_in_float32"] = (
            speeds["ours_float32"] / speeds["torch_float32_kept"]
        )
    return values


def parse() -> argparse.Namespace:
    """The call; ``--quick`` sets what is not given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--threads", type=int, default=2, help="of each: 2")
    parser.add_argument("--quick", action="store_true", help="measure less; under 5 minutes")
    parser.add_argument("--alone", action="store_true", help="measure only ours")
    parser.add_argument("--turns", type=int, help="5; quick: 2")
    parser.add_argument("--updates", type=int, help="until the loss is looked at: 300; quick: 0")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark_training"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables there")
    arguments = parser.parse_args()
    defaults = {"turns": 2, "updates": 0} if arguments.quick else {"turns": 5, "updates": 300}
    for name, value in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if arguments.updates > MOST:
        parser.error(f"--updates must be at most {MOST}, for which the others have batches")
    arguments.updates_of_a_turn = QUICK_TURN if arguments.quick else TURN
    arguments.folder = arguments.folder.resolve()
    arguments.data_root = arguments.data_root.resolve()
    return arguments


def main() -> int:
    """Returns the exit code: 2 where Hugging Face's library is not installed."""
    arguments = parse()
    if find_spec("transformers") is None:
        print("error: transformers is not installed: pip install -e '.[dev]'", file=sys.stderr)
        return 2
    lines: list[str] = []
    values = {}
    for size in arguments.sizes:
        commit = short(code_version("benchmarks", "constraints.txt")["commit"] or UNKNOWN)
        batches = f"batches of {BUDGETS[size]:,} tokens, {machine(arguments.threads)}"
        title = f"{size}, {batches}, commit {commit}"
        measured: list[Subject] = []
        prepare(size, arguments)
        for together in subjects(size, arguments.quick, arguments.alone):
            measure(together, size, arguments)
            measured += together
            # The losses may take longer than all turns: who stops there has the speeds.
            show(measured, title)
            learn(together, size, arguments.updates)
        lines += show(measured, title)
        values[size] = summary(measured, size)
        # Before the page is written: one that cannot be costs no measurement. Nor does a size that
        # ends before its time cost those before it.
        print(json.dumps(values), flush=True)
        if arguments.write:
            write_between(arguments.write, "training", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
