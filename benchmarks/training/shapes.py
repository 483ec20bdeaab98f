"""Counts what batches of few shapes cost: tokens of padding, logits and batches of an epoch.

    python -m benchmarks.training.shapes [experiment=multi30k data.root=FOLDER] [KEY=VALUE…]

For each budget (``data.batch_tokens``) a row for the usual batches, and one for each number of
shapes (``data.batch_shapes``). It reads the lengths of the training text of a run, and trains
nothing. Every number is exact, but for the first row of a budget: batches of an epoch differ by
where they begin, so its positions are the mean of three epochs.
"""

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.support.records import markdown
from transformer.cli.config import compose_config, run_settings
from transformer.data.batching.batch_sequence import BatchPlan, EpochBatches, Lengths
from transformer.data.batching.batch_shapes import ShapedPlan
from transformer.tasks.registry import make_task

BUDGETS = (4096, 8192, 25_000)
SHAPES = (8, 12, 16, 24, 32, 48)
EPOCHS = 3
COLUMNS = ("tokens a side", "shapes", "batches", "positions", "more", "logits more")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    lengths = training_lengths(parser.parse_args().overrides)
    rows = [row for budget in BUDGETS for row in counted(lengths, budget)]
    print("\n".join(markdown(COLUMNS, rows)))


def training_lengths(overrides: Sequence[str]) -> Lengths:
    """The tokens of each pair that a run trains on, without eos."""
    data = make_task(run_settings(compose_config("train", [*overrides]))).data
    data.prepare_data()
    data.setup("fit")
    return data.lengths()["train"]


def counted(
    lengths: Lengths, budget: int, shapes: Sequence[int] = SHAPES
) -> Iterator[Sequence[str]]:
    """The rows of a budget.

    *More* is the share of positions of both sides above the usual batches; *logits more* that of
    positions for which logits are computed above the tokens of the targets.
    """
    tokens = int((lengths[1] + 1).sum())
    usual = BatchPlan(*lengths, batch_tokens=budget, seed=1)
    epochs = [usual.epoch(epoch) for epoch in range(EPOCHS)]
    positions = float(np.mean([usual.positions(epoch).sum() for epoch in epochs]))
    size = f"{different(lengths, epochs[0])}, as they come"
    yield f"{budget:,}", size, f"{len(usual):,}", f"{positions:,.0f}", "", ""
    for count in shapes:
        plan = ShapedPlan(*lengths, batch_tokens=budget, shapes=count, seed=1)
        epoch = plan.epoch(0)
        padded = int(plan.positions(epoch).sum())
        assert epoch.shapes is not None
        logits = sum(shape.labels for shape in epoch.shapes)
        yield (
            f"{budget:,}",
            f"{len(plan.shapes)}",
            f"{len(plan):,}",
            f"{padded:,}",
            f"{padded / positions - 1:+.1%}",
            f"{logits / tokens - 1:+.1%}",
        )


def different(lengths: Lengths, batches: EpochBatches) -> int:
    """Numbers of rows and longest sides that batches differ in."""
    starts = batches.bounds[:-1]
    longest = (np.maximum.reduceat(side[batches.pairs], starts) for side in lengths)
    return len(set(zip(np.diff(batches.bounds).tolist(), *longest, strict=True)))


if __name__ == "__main__":
    main()
