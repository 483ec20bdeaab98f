"""One training run: from a typed config to a tested checkpoint.

It wires; what each part does is the part's own business.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.utilities import rank_zero_only

from transformer.data.batch_module import BatchModule
from transformer.data.tokenizer import Tokenizer
from transformer.doctor.at_start import log_faults
from transformer.errors import InputError
from transformer.evaluation.metrics import Score
from transformer.evaluation.report import print_table, save_report, table_console
from transformer.model.checkpoint import (
    PORTABLE,
    find_checkpoint,
    find_last,
    read_payload,
    task_of,
)
from transformer.training.budget import Attempt, device_of, largest_fitting, with_budget
from transformer.training.checkpoint import set_aside_damaged, set_aside_tuned
from transformer.training.config import RunConfig, run_config
from transformer.training.language_modelling import LanguageModelling
from transformer.training.launcher import Ranks
from transformer.training.memory import keep_freed_memory
from transformer.training.objective import Objective
from transformer.training.recovery import Diverged, save_text
from transformer.training.rehearsal import Rehearsal
from transformer.training.rendezvous import failing_together
from transformer.training.run_folder import changes, is_finished, mark_finished
from transformer.training.sharding import consolidate
from transformer.training.stopping import raise_if_stopped, stoppable
from transformer.training.tagging import Tagging
from transformer.training.task import Evaluation, Task
from transformer.training.trainer import bound_by_epochs, build_trainer
from transformer.training.translation import Translation

logger = logging.getLogger(__name__)


def train(
    config: RunConfig,
    folder: Path,
    *,
    rank_command: Sequence[str] | None = None,
    objective: Objective | None = None,
) -> dict[str, float]:
    """Train, then test the best checkpoint once.

    Args:
        config: The run.
        folder: The run directory; checkpoints, logs and test results go there.
        rank_command: What starts another rank on this machine; None: what started this process.
        objective: What to watch in a trial of a sweep, which tests nothing.

    Returns:
        The last value of every logged metric, and the scores of the test.

    Raises:
        InputError: The config or the data is wrong, or the last checkpoint cannot be written.
        Interrupted: A signal has stopped it; a checkpoint has been written.
        AnotherRankFailed: It has said why.
    """
    with stoppable(folder):
        watching = [] if objective is None else [objective]
        trainer, task, trained = fit(config, folder, watching, rank_command)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if not trainer.is_global_zero:
            return metrics
        if not trained and is_finished(folder):
            logger.info("%s is finished: there is nothing to train or test", folder)
            return metrics
        consolidate(folder / "checkpoints")
        if objective is None:
            metrics |= test(folder, task)
        mark_finished(folder)
        return metrics


def fit(
    config: RunConfig,
    folder: Path,
    watching: Sequence[Callback] = (),
    rank_command: Sequence[str] | None = None,
) -> tuple[Trainer, Task, int]:
    """Train, and test nothing.

    Args:
        config: The run.
        folder: The run directory.
        watching: More callbacks.
        rank_command: As in `train`.

    Returns:
        What has trained, what it was, and how many updates it has made.
    """
    if config.keep_memory:
        keep_freed_memory()
    seed_everything(config.seed, workers=True, verbose=False)
    resume = payload = None
    if config.checkpoint is not None:
        resume, payload = find_last(config.checkpoint)
    if config.automatic_budget:
        config = _with_measured_budget(config, payload)
    task = _prepared_task(config, payload)
    _describe(task)
    before = 0 if payload is None else payload["global_step"]
    for line in [] if payload is None else changes(payload[PORTABLE]["config"], config.resolved):
        logger.info("changed: %s", line)
    with Ranks(rank_command) as ranks, failing_together():
        trainer = _fit(config, folder, task, resume, payload, ranks, watching)
    trained = trainer.global_step - before
    if not trained:
        said = "all %d updates are done; a larger trainer.max_steps, or more patience, would go on"
        logger.info(said, trainer.global_step)
    return trainer, task, trained


def _prepared_task(config: RunConfig, payload: dict[str, Any] | None) -> Task:
    """The task, with its text encoded."""
    task = make_task(config, payload)
    task.data.accumulation = config.trainer["accumulate_grad_batches"]
    task.data.prepare_data()
    if config.task == "translation" and rank_zero_only.rank == 0:  # type: ignore[attr-defined]
        log_faults(config.data)
    task.data.setup("fit")
    return task


def _with_measured_budget(config: RunConfig, payload: dict[str, Any] | None) -> RunConfig:
    """The run with the largest budget of a batch that its device has the memory for."""
    device = device_of(config.trainer)
    module = _prepared_task(config, payload).module

    def data_of(budget: int) -> BatchModule:
        data = make_task(with_budget(config, budget), payload).data
        data.setup("fit")
        return data

    attempt = Attempt(module, data_of, device, str(config.trainer["precision"]))
    budget = largest_fitting(attempt, config.data.batch_tokens)
    module.cpu()
    attempt.forget()
    logger.info("data.batch_tokens=%d fits %s", budget, device)
    return with_budget(config, budget)


def _fit(
    config: RunConfig,
    folder: Path,
    task: Task,
    resume: Path | None,
    payload: dict[str, Any] | None,
    ranks: Ranks,
    watching: Sequence[Callback],
) -> Trainer:
    """Train; where it diverges, go back to the last good checkpoint with a lower learning rate.

    Raises:
        InputError: It has gone back as often as it may.
        Interrupted: A signal has stopped it; a checkpoint has been written.
    """
    while True:
        callbacks = [Rehearsal(task.data), *task.callbacks(), *watching]
        trainer = build_trainer(config, folder, callbacks, task.criterion, ranks)
        bound_by_epochs(trainer, config.trainer["max_epochs"], task.data, payload)
        if trainer.is_global_zero:
            set_aside_tuned(folder / "checkpoints")
            set_aside_damaged(folder / "checkpoints", resume)
        try:
            trainer.fit(task.module, datamodule=task.data, ckpt_path=resume)
            raise_if_stopped(trainer)
            return trainer
        except Diverged as divergence:
            judge, rank = task.module.judge, trainer.global_rank
            text = save_text(divergence, folder, rank, task.data.tokenizer)
            if judge.returned >= config.recovery.returns:
                raise InputError(
                    f"training diverges: {divergence}, after {judge.returned} returns to the last "
                    f"good checkpoint; look at the batch in {text}, lower optimizer.lr, "
                    "or lengthen schedule.warmup"
                ) from divergence
            judge.returned += 1
            resume = folder / "checkpoints" / "last.ckpt"
            logger.warning(
                "%s: going back to %s with the learning rate times %g",
                *(divergence, resume, judge.lr_scale),
            )


TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "tagging": Tagging,
    "language_modelling": LanguageModelling,
}
"""What ``task=NAME`` makes."""


def make_task(config: RunConfig, payload: dict[str, Any] | None = None) -> Task:
    """The task of a run, or of the checkpoint that it goes on from.

    Raises:
        InputError: The checkpoint is of another task.
    """
    if payload is None:
        return TASKS[config.task](config, None)
    if task_of(payload) != config.task:
        raise InputError(
            f"checkpoint={config.checkpoint} was trained for task={task_of(payload)}; it cannot "
            f"go on with task={config.task}"
        )
    return TASKS[config.task](config, Tokenizer.from_state(payload[PORTABLE]["tokenizer"]))


def test(folder: Path, task: Task) -> dict[str, float]:
    """Score the test splits with the best checkpoint; write what came of it."""
    evaluate = task.evaluator(folder)
    metrics: dict[str, float] = {}
    for split in task.data.splits:
        if split != "validation":
            scores = report(split, evaluate(split), folder)
            metrics |= {f"{split}/{s.name.lower()}": s.value for s in scores}
    return metrics


def report(name: str, evaluation: Evaluation, folder: Path | None) -> Sequence[Score]:
    """Show an evaluation on stderr, and save it where a folder is given; return its scores."""
    if folder is not None:
        save_report(folder, name, evaluation.scores, evaluation.hypotheses)
    print_table(name, evaluation.scores)
    console = table_console()
    for table in evaluation.tables:
        console.print(table)
    return evaluation.scores


def evaluate_again(
    checkpoint: Path,
    split: str,
    *,
    output: Path | None = None,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
) -> Sequence[Score]:
    """Score a model of any task on a split of its run's corpus, as its test does.

    Args:
        checkpoint: A file, or a run directory.
        split: Such as test.
        output: Where to save what came of it; None saves nothing.
        device: Where to compute.
        batch_tokens: Budget of a batch; None takes that of the run.

    Raises:
        InputError: There is no such checkpoint or split.
    """
    file = find_checkpoint(checkpoint)
    payload = read_payload(file)
    config = run_config(payload[PORTABLE]["config"])
    if batch_tokens is not None:
        config = replace(config, data=replace(config.data, batch_tokens=batch_tokens))
    task = make_task(config, payload)
    if split not in task.data.splits:
        raise InputError(
            f"split={split} is not there to evaluate on; choose one of "
            f"{', '.join(task.data.splits)}"
        )
    return report(split, task.evaluator(file, device)(split), output)


def _describe(task: Task) -> None:
    parameters = sum(parameter.numel() for parameter in task.module.parameters())
    config = task.module.model.config
    logger.info(
        "%s parameters, vocabulary %d source, %d target",
        f"{parameters:,}",
        config.source_vocab_size,
        config.target_vocab_size,
    )
