"""One training run: from a typed config to a tested checkpoint."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pytorch_lightning import Callback, Trainer, seed_everything

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.corpora.trust import needs_trust
from transformer.model.checkpoint.checkpoint import PORTABLE, TEXT_TO_TEXT, load_weights
from transformer.model.checkpoint.locate import run_folder
from transformer.runs.config_warnings import warn_about_config, warn_about_vocabulary
from transformer.runs.reporting import RunReport
from transformer.runs.resume import changes, check_no_other_run
from transformer.tasks.base import Task
from transformer.tasks.registry import is_translation, make_task, test, untested
from transformer.training.callbacks.graceful_shutdown import raise_if_stopped, stoppable
from transformer.training.callbacks.memory_preflight import MemoryPreflight
from transformer.training.callbacks.progress import shown_update
from transformer.training.callbacks.sweep_objective import Objective
from transformer.training.checkpointing.checkpoint_io import consolidate
from transformer.training.checkpointing.run_directory import is_finished, mark_finished
from transformer.training.checkpointing.training_state import find_resumable, loader_state
from transformer.training.config import RunConfig, sized_model, skips_blocks, with_resolved
from transformer.training.optimization.cpu_allocator import keep_freed_memory, keep_products
from transformer.training.optimization.divergence import Diverged, save_text
from transformer.training.precision import resolve_precision, trains_on_gpu
from transformer.training.trainer import bound_by_epochs, build_trainer, end_reason

logger = logging.getLogger(__name__)


class ResumeState(NamedTuple):
    """State of a new or resumed run."""

    file: Path | None
    """The checkpoint to resume from."""
    done: int
    loader: dict[str, Any] | None


def train(
    config: RunConfig,
    folder: Path | str,
    *,
    callbacks: Sequence[Callback] = (),
    objective: Objective | None = None,
) -> dict[str, float]:
    """Train in a run directory, then test the best checkpoint once, unless ``test`` is false.

    ``config.checkpoint`` resumes a run. A trial of a sweep has an ``objective``, and tests nothing.
    Returns the last value of every logged metric, and the scores of the test. Raises InputError for
    a wrong config, text or folder, and Interrupted after a signal, with a checkpoint written.
    """
    config, folder = with_resolved(config), Path(folder)
    if config.checkpoint is None:
        check_no_other_run(folder, sweeps=objective is not None)
    elif run_folder(config.checkpoint) != folder.resolve():
        raise InputError(f"checkpoint={config.checkpoint} goes on in its own folder, not {folder}")
    resume = f"transformer train {_resume(config, folder)}"
    with RunReport(config, folder) as report, stoppable(folder, resume):
        watching = [] if objective is None else [objective]
        trainer, task, trained = fit(config, folder, [*callbacks, *watching, report])
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
            report.changed = True
        if config.logger.wandb:
            from transformer.training.callbacks.remote_loggers import finish_records

            finish_records(trainer, folder, metrics)
        mark_finished(folder)
        if objective is None:
            texts = config.task in TEXT_TO_TEXT or is_translation(config.task)
            verb = "translate" if texts else "predict"
            logger.info("done; new text: transformer %s checkpoint=%s", verb, folder)
        return metrics


def fit(
    config: RunConfig, folder: Path, watching: Sequence[Callback] = ()
) -> tuple[Trainer, Task, int]:
    """Train with more callbacks; returns the trainer, the task, and the number of new updates."""
    keep_products()
    if config.keep_memory:
        keep_freed_memory()
    seed_everything(config.seed, workers=True, verbose=False)
    given, config = config, replace(config, trainer=resolve_precision(config.trainer))
    if given.trainer != config.trainer:
        logger.info("precision=auto is %s on this device", config.trainer.precision)
    config = _with_compiler(config)
    config, task, resume_state = _prepare(config)
    trainer = _fit(config, folder, task, resume_state, watching)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    trained = trainer.global_step - resume_state.done
    key, reached = end_reason(trainer, config)
    if not trained or key == "trainer.max_time":
        logger.info("%s; resume with %s and a higher %s", reached, _resume(config, folder), key)
    return trainer, task, trained


def _with_compiler(config: RunConfig) -> RunConfig:
    """The config with a choice for ``trainer.compile=auto``: none on a CPU or without compiler."""
    chosen, on_gpu = config.trainer.compile, trains_on_gpu(config.trainer)
    automatic = chosen == "auto"
    if chosen == "none" or (automatic and not on_gpu):
        return replace(config, trainer=replace(config.trainer, compile="none"))
    from transformer.training.optimization.compiled_layers import check_compiler

    if automatic:
        chosen = "loss" if skips_blocks(sized_model(config.model, 1, 1)) else "layers"
    device, cache = torch.device("cuda" if on_gpu else "cpu"), given_path(config.data.cache)
    try:
        check_compiler(device, cache / "compiled")
    except Exception as error:  # A compiler can fail in many ways.
        if not automatic:
            raise
        logger.warning("nothing is compiled, so training is slower: %s", error)
        chosen = "none"
    if automatic:
        logger.info("trainer.compile=auto is %s on this device", chosen)
    return replace(config, trainer=replace(config.trainer, compile=chosen))


def _resume(config: RunConfig, folder: Path) -> str:
    return f"checkpoint={folder}{' trust=true' if needs_trust(config.resolved) else ''}"


def _prepare(config: RunConfig) -> tuple[RunConfig, Task, ResumeState]:
    resume = payload = None
    if config.checkpoint is not None:
        resume, payload = find_resumable(config.checkpoint)
        # The fraction of pairs that were left out was checked when the run began.
        config = replace(config, data=replace(config.data, max_left_out=1.0))
    initial = payload
    if payload is None and config.finetune_from is not None:
        from transformer.runs.finetuning import initial_payload

        initial = initial_payload(config, config.finetune_from)
    if config.automatic_budget:
        from transformer.runs.auto_batch_size import with_resolved_budget

        config = with_resolved_budget(config, payload, initial)
    task = make_task(config, initial)
    task.data.accumulation = config.trainer.accumulate_grad_batches
    task.data.prepare_data()
    task.data.setup("fit")
    if payload is None and initial is not None and config.finetune_from is not None:
        load_weights(task.module.model, initial, config.finetune_from)
        task.module.train()
        logger.info("beginning with the weights of %s", config.finetune_from)
    _log_size(task)
    warn_about_config(config)
    warn_about_vocabulary(config, task.data)
    if payload is None:
        return config, task, ResumeState(resume, 0, None)
    done, state = payload["global_step"], loader_state(payload)
    task.data.resume_from(state)
    logger.info("going on from %s, after %s", resume, shown_update(done, task.data.epochs(done)))
    changed = changes(payload[PORTABLE]["config"], config.resolved)
    for line in changed:
        logger.info("changed: %s", line)
    if any(line.startswith("decoding.") for line in changed):
        logger.warning(
            "validation scores from here on are of another search: best.ckpt stays until one of "
            "them is higher than all before"
        )
    return config, task, ResumeState(resume, done, state)


def _fit(
    config: RunConfig,
    folder: Path,
    task: Task,
    resume_state: ResumeState,
    watching: Sequence[Callback],
) -> Trainer:
    resume, epochs = resume_state.file, config.trainer.max_epochs
    while True:
        callbacks = [MemoryPreflight(task.data), *task.callbacks(), *watching]
        trainer = build_trainer(config, folder, callbacks, task.criterion(config))
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
                    f"last good checkpoint; look at the batch in {text}, lower optimizer.lr, or "
                    "lengthen schedule.warmup"
                ) from divergence
            detector.returned += 1
            resume = folder / "checkpoints" / "last.ckpt"
            logger.warning(
                "%s: going back to %s with the learning rate times %g",
                *(divergence, resume, detector.lr_scale),
            )


def _log_size(task: Task) -> None:
    config, parameters = task.module.model.config, list(task.module.parameters())
    total = sum(one.numel() for one in parameters)
    learns = sum(one.numel() for one in parameters if one.requires_grad)
    logger.info(
        "%s parameters%s, vocabulary %d source, %d target",
        f"{total:,}",
        f", {learns:,} of them learn" if learns < total else "",
        config.source_vocab_size,
        config.target_vocab_size,
    )
