"""One training run: from a typed config to a tested checkpoint.

It wires; what each part does is the part's own business.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from pytorch_lightning.utilities.seed import isolate_rng

from transformer.common.errors import InputError
from transformer.data.modules.base import BatchModule
from transformer.model.checkpoint.checkpoint import PORTABLE
from transformer.runs.auto_batch_size import Attempt, largest_fitting, resolve_device, with_budget
from transformer.runs.config_warnings import (
    warn_about_bfloat16,
    warn_about_factor,
    warn_about_warmup,
)
from transformer.runs.finetuning import begin_with, initial_payload
from transformer.runs.resume import changes
from transformer.tasks.base import Task
from transformer.tasks.registry import make_task, test, untested
from transformer.training.callbacks.graceful_shutdown import raise_if_stopped, stoppable
from transformer.training.callbacks.memory_preflight import MemoryPreflight
from transformer.training.callbacks.progress import shown_update
from transformer.training.callbacks.sweep_objective import Objective
from transformer.training.checkpointing.run_directory import is_finished, mark_finished
from transformer.training.checkpointing.saved_state import find_resumable, loader_state
from transformer.training.config import RunConfig
from transformer.training.distributed.fsdp import consolidate
from transformer.training.optimization.cpu_allocator import keep_freed_memory, keep_products
from transformer.training.optimization.divergence import Diverged, save_text
from transformer.training.trainer import bound_by_epochs, build_trainer, end_reason

logger = logging.getLogger(__name__)


class ResumeState(NamedTuple):
    """Where a run stands that begins, or goes on."""

    file: Path | None
    """To go on from."""
    done: int
    """Updates."""
    loader: dict[str, Any] | None
    """What its loader said."""


def train(
    config: RunConfig, folder: Path, *, objective: Objective | None = None
) -> dict[str, float]:
    """Train, then test the best checkpoint once, unless ``config.test`` is false.

    Args:
        config: The run.
        folder: The run directory; checkpoints, logs and test results go there.
        objective: What to watch in a trial of a sweep, which tests nothing.

    Returns:
        The last value of every logged metric, and the scores of the test.

    Raises:
        InputError: The config or the data is wrong, or the last checkpoint cannot be written.
        Interrupted: A signal has stopped it; a checkpoint has been written.
    """
    with stoppable(folder):
        watching = [] if objective is None else [objective]
        trainer, task, trained = fit(config, folder, watching)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if not trainer.is_global_zero:
            return metrics
        to_test = config.test and objective is None
        if not trained and is_finished(folder) and not (to_test and untested(folder, task)):
            logger.info("%s is finished: there is nothing to train or test", folder)
            return metrics
        consolidate(folder / "checkpoints")
        if to_test:
            metrics |= test(folder, task, trainer.strategy.root_device)
        mark_finished(folder)
        return metrics


def fit(
    config: RunConfig, folder: Path, watching: Sequence[Callback] = ()
) -> tuple[Trainer, Task, int]:
    """Train, and test nothing.

    Args:
        config: The run.
        folder: The run directory.
        watching: More callbacks.

    Returns:
        What has trained, what it was, and how many updates it has made.
    """
    keep_products()
    if config.keep_memory:
        keep_freed_memory()
    seed_everything(config.seed, workers=True, verbose=False)
    config, task, resume_state = _begun(config)
    trainer = _fit(config, folder, task, resume_state, watching)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    trained = trainer.global_step - resume_state.done
    key, reached = end_reason(trainer, config)
    if not trained or key == "trainer.max_time":
        logger.info("%s; resume with checkpoint=%s and a higher %s", reached, folder, key)
    return trainer, task, trained


def _begun(config: RunConfig) -> tuple[RunConfig, Task, ResumeState]:
    """The run with a budget that fits, its task with the first weights, and where it stands.

    The checkpoint is let go of: the trainer reads the file itself, and twice may be more than
    memory holds.
    """
    resume = payload = None
    if config.checkpoint is not None:
        resume, payload = find_resumable(config.checkpoint)
        # How much is left out was judged when the run began.
        config = replace(config, data=replace(config.data, max_left_out=1.0))
    beginning = payload or initial_payload(config)
    if config.automatic_budget and payload is not None:
        began = payload[PORTABLE]["config"]["data"]["batch_tokens"]
        said = "data.batch_tokens=%d, as the run began with; give a number to change it"
        logger.info(said, began)
        config = with_budget(config, began)
    elif config.automatic_budget:
        # What it draws at random, weights among it, leaves those of the run as they would be.
        with isolate_rng():
            config = _with_measured_budget(config, beginning)
    task = _prepared_task(config, beginning)
    if payload is None and beginning is not None and config.finetune_from is not None:
        begin_with(task.module.model, beginning, config.finetune_from)
    _describe(task)
    warn_about_warmup(config)
    warn_about_factor(config)
    warn_about_bfloat16(config)
    if payload is None:
        return config, task, ResumeState(resume, 0, None)
    done = payload["global_step"]
    state = loader_state(payload)
    task.data.resume_from(state)
    logger.info("going on from %s, after %s", resume, shown_update(done, task.data.epochs(done)))
    for line in changes(payload[PORTABLE]["config"], config.resolved):
        logger.info("changed: %s", line)
    return config, task, ResumeState(resume, done, state)


def _prepared_task(config: RunConfig, payload: dict[str, Any] | None) -> Task:
    """The task, with its text encoded."""
    task = make_task(config, payload)
    task.data.accumulation = config.trainer["accumulate_grad_batches"]
    task.data.prepare_data()
    task.data.setup("fit")
    return task


def _with_measured_budget(config: RunConfig, payload: dict[str, Any] | None) -> RunConfig:
    """The run with the largest budget of a batch that its device has the memory for."""
    device = resolve_device(config)
    task = make_task(config, payload)
    task.data.prepare_data()
    module = task.module

    def resolve_data(budget: int) -> BatchModule:
        data = make_task(with_budget(config, budget), payload).data
        data.setup("fit")
        return data

    attempt = Attempt(module, resolve_data, device, config)
    budget = largest_fitting(attempt, config.data.batch_tokens)
    module.cpu()
    attempt.forget()
    logger.info("data.batch_tokens=%d fits %s", budget, device)
    return with_budget(config, budget)


def _fit(
    config: RunConfig,
    folder: Path,
    task: Task,
    resume_state: ResumeState,
    watching: Sequence[Callback],
) -> Trainer:
    """Train; where it diverges, go back to the last good checkpoint with a lower learning rate.

    Raises:
        InputError: It has gone back as often as it may.
        Interrupted: A signal has stopped it; a checkpoint has been written.
    """
    resume, epochs = resume_state.file, config.trainer["max_epochs"]
    while True:
        callbacks = [MemoryPreflight(task.data), *task.callbacks(), *watching]
        trainer = build_trainer(config, folder, callbacks, task.criterion)
        bound_by_epochs(trainer, epochs, task.data, resume_state.done, resume_state.loader)
        try:
            trainer.fit(task.module, datamodule=task.data, ckpt_path=resume)
            raise_if_stopped(trainer)
            return trainer
        except Diverged as divergence:
            detector, rank = task.module.detector, trainer.global_rank
            text = save_text(divergence, folder, rank, task.data.tokenizer)
            if detector.returned >= config.recovery.returns:
                raise InputError(
                    f"training diverges: {divergence}, after {detector.returned} returns to the "
                    "last "
                    f"good checkpoint; look at the batch in {text}, lower optimizer.lr, "
                    "or lengthen schedule.warmup"
                ) from divergence
            detector.returned += 1
            resume = folder / "checkpoints" / "last.ckpt"
            logger.warning(
                "%s: going back to %s with the learning rate times %g",
                *(divergence, resume, detector.lr_scale),
            )


def _describe(task: Task) -> None:
    parameters = sum(parameter.numel() for parameter in task.module.parameters())
    config = task.module.model.config
    logger.info(
        "%s parameters, vocabulary %d source, %d target",
        f"{parameters:,}",
        config.source_vocab_size,
        config.target_vocab_size,
    )
