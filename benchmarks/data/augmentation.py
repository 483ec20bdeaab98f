"""Time of augmentation for a batch, beside that of a forward and backward pass.

    python benchmarks/data/augmentation.py experiment=multi30k_tiny data.root=FOLDER

Keys are those of ``train``. It makes the same number of batches with ``augmentation=none`` and
``robust``, in one process and in turns, and prints CPU milliseconds a batch (OMP_NUM_THREADS=1).
"""

import sys
import time
from statistics import median

from transformer.cli.config import compose_config, run_settings
from transformer.tasks.base import Task
from transformer.tasks.registry import make_task

BATCHES = 50
PASSES = 10
ROUNDS = 4


def task_of(arguments: list[str]) -> Task:
    """The task of a run with these arguments, its text prepared."""
    task = make_task(run_settings(compose_config("train", arguments)))
    task.data.prepare_data()
    task.data.setup("fit")
    return task


def milliseconds_a_batch(task: Task) -> float:
    """CPU time of a batch as the loader makes it."""
    dataset = task.data._training
    batches = task.data.sequence
    start = time.process_time()
    for number in range(BATCHES):
        dataset[batches[number]]
    return (time.process_time() - start) / BATCHES * 1000


def milliseconds_a_pass(task: Task) -> float:
    """CPU time of the loss and its gradient."""
    batches = [task.data._training[task.data.sequence[number]] for number in range(PASSES)]
    task.module.train()
    start = time.process_time()
    for batch in batches:
        task.module.model(batch.source, batch.target_input).float().logsumexp(-1).sum().backward()
    return (time.process_time() - start) / PASSES * 1000


def main() -> None:
    """Print a line for each."""
    tasks = {name: task_of([*sys.argv[1:], f"augmentation={name}"]) for name in ("none", "robust")}
    rounds = [
        {name: milliseconds_a_batch(task) for name, task in tasks.items()} for _ in range(ROUNDS)
    ]
    plain, robust = (median(times[name] for times in rounds) for name in tasks)
    passes = milliseconds_a_pass(tasks["robust"])
    print(f"batch, augmentation=none    {plain:8.2f} ms")
    print(f"batch, augmentation=robust  {robust:8.2f} ms")
    print(f"forward and backward pass   {passes:8.2f} ms")
    print(f"augmentation adds {100 * (robust - plain) / (passes + plain):.2f} %")


if __name__ == "__main__":
    main()
