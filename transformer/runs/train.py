"""One training run: from a typed config to a tested checkpoint."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pytorch_lightning import Callback, Trainer, seed_everything

from transformer.checkpoint.checkpoint import TEXT_TO_TEXT, find_last, load_weights, portable_part
from transformer.checkpoint.run_directory import (
    has_checkpoint,
    is_finished,
    is_of_run,
    mark_finished,
    run_folder,
    saved_config,
    write_config,
)
from transformer.checkpoint.trust import needs_trust
from transformer.common.errors import InputError
from transformer.data.datamodules.translation import TranslationData
from transformer.data.tokenization.vocabulary_training import (
    VocabularyTooLarge,
    largest_vocabulary,
)
from transformer.runs.callbacks import QualityChecks, RunReport
from transformer.runs.config_warnings import (
    warn_about_config,
    warn_about_tokenization,
    warn_about_vocabulary,
    warn_about_warmup,
)
from transformer.runs.directory import LOG, run_directory, run_log
from transformer.runs.processes import count_processes, train_in_processes
from transformer.runs.resume import changes, check_fixed_keys, check_no_other_run
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig, completed
from transformer.tasks.base import Task
from transformer.tasks.registry import is_translation, make_task, test, untested
from transformer.training.callbacks.best_score import Objective
from transformer.training.callbacks.graceful_shutdown import raise_if_stopped, stoppable
from transformer.training.callbacks.memory_preflight import MemoryPreflight
from transformer.training.callbacks.progress import shown_update
from transformer.training.checkpointing import (
    Resumable,
    consolidate,
    find_resumable,
    loader_state,
)
from transformer.training.distributed.ddp import require_gpu
from transformer.training.distributed.ranks import process_rank
from transformer.training.divergence import Diverged, save_text
from transformer.training.layer_wrappers import compile_choice
from transformer.training.precision import resolve_precision, trains_on_gpu
from transformer.training.process_state import process_state_kept
from transformer.training.trainer import (
    build_trainer,
    end_reason,
    updates_of_epochs,
)

logger = logging.getLogger(__name__)


class ResumeState(NamedTuple):
    """State of a new or resumed run."""

    checkpoint: Resumable | None
    """The checkpoint to resume from."""
    done: int
    loader: dict[str, Any] | None


def train(
    config: RunConfig,
    folder: Path | str,
    *,
    callbacks: Sequence[Callback] = (),
    objective: Objective | None = None,
    fit_vocabulary: bool = False,
) -> dict[str, float]:
    """Train in a run directory, then test the best checkpoint once, unless ``test`` is false.

    On many devices new processes train, unless torchrun or SLURM has started this one. The settings
    of this process, such as its random state, are as before when the function returns.

    Args:
        config: The settings; ``config.checkpoint`` resumes a run.
        folder: The run directory. It is made, locked, and has ``config.yaml`` and ``train.log``; an
            error before the first checkpoint removes a new one.
        callbacks: Added to those of the config. New processes take only those that
            ``callbacks.own`` names.
        objective: Of a trial of a sweep, which tests nothing.
        fit_vocabulary: Whether a vocabulary that is too large for the text gets the largest
            possible size.

    Returns:
        The last value of every logged metric, and the scores of the test.

    Raises:
        InputError: The config or the text is wrong, or the folder has another run.
        OSError: The folder cannot be made.
        AnotherRankFailed: Another process of the run has failed.
        Interrupted: After a signal; a checkpoint is written.
    """
    config = completed(config)
    folder = Path(folder)
    is_rank_0 = process_rank() == 0
    if config.checkpoint is not None:
        _check_resumes_in(config.checkpoint, folder)
    require_gpu(config.trainer)
    count = count_processes(config.trainer)
    if count > 1:
        if callbacks:
            raise InputError(
                f"callbacks of this process cannot train in {count} others: name their classes in "
                "callbacks.own, or start this program with torchrun"
            )
        metric = None if objective is None else objective.metric
        values = train_in_processes(count, config, folder, metric, fit_vocabulary=fit_vocabulary)
        _recall(objective, folder)
        return values
    with ExitStack() as stack:
        stack.enter_context(process_state_kept())
        if is_rank_0:
            stack.enter_context(run_directory(folder))
            if config.checkpoint is None:
                check_no_other_run(folder, sweeps=objective is not None)
            stack.enter_context(saved_config(config, folder))
            resumed = config.checkpoint is not None
            stack.enter_context(run_log(folder / LOG, resumed=resumed))
        logger.info("run directory %s", folder)
        while True:
            try:
                return _train_and_test(config, folder, callbacks, objective)
            except VocabularyTooLarge as error:
                if not fit_vocabulary:
                    raise
                tokenizer = largest_vocabulary(config.tokenizer, error)
                config = replace(config, tokenizer=tokenizer)
                if is_rank_0:
                    write_config(config, folder)


def _recall(objective: Objective | None, folder: Path) -> None:
    """Give an objective the best value of the processes that have trained in a folder."""
    if objective is not None and has_checkpoint(folder):
        objective.recall(find_last(folder, tensors=False)[1])


def _check_resumes_in(checkpoint: Path, folder: Path) -> None:
    """Raise InputError unless a run resumes in its own directory, whose files it replaces."""
    if checkpoint.is_file() and not is_of_run(checkpoint):
        raise InputError(
            f"checkpoint={checkpoint} lies in no run directory, where its run would go on; give "
            f"the run, or begin another with its weights: finetune_from={checkpoint}"
        )
    if run_folder(checkpoint) != folder.resolve():
        raise InputError(f"checkpoint={checkpoint} resumes in its own folder, not {folder}")


def _train_and_test(
    config: RunConfig,
    folder: Path,
    callbacks: Sequence[Callback],
    objective: Objective | None,
) -> dict[str, float]:
    command = f"transformer train {resume_arguments(config, folder)}"
    with RunReport(config, folder) as report, stoppable(folder, command):
        callbacks = list(callbacks)
        if objective is not None:
            callbacks.append(objective)
        reads_text = config.data.source_kind == "text"
        if config.callbacks.quality and reads_text and is_translation(config.task):
            callbacks.append(QualityChecks(config.data))
        trainer, task, trained = fit(config, folder, [*callbacks, report])
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
            from transformer.training.callbacks.loggers import finish_records

            finish_records(trainer, folder, metrics)
        mark_finished(folder)
        if objective is None:
            texts = config.task in TEXT_TO_TEXT or is_translation(config.task)
            verb = "translate" if texts else "predict"
            logger.info("done; new text: transformer %s checkpoint=%s", verb, folder)
        return metrics


def fit(
    config: RunConfig, folder: Path, callbacks: Sequence[Callback] = ()
) -> tuple[Trainer, Task, int]:
    """Train without tests; returns the trainer, the task, and the number of new updates.

    ``callbacks`` are added to those of the config.
    """
    seed_everything(config.seed, workers=True, verbose=False)
    if config.trainer.precision == "auto":
        precision = resolve_precision(config.trainer).precision
        logger.info("precision=auto is %s on this device", precision)
    _log_compiler(config)
    config, task, resume_state = _prepare(config)
    trainer = _fit(config, folder, task, resume_state, callbacks)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    trained = trainer.global_step - resume_state.done
    key, reached = end_reason(trainer, config)
    if not trained or key == "trainer.max_time":
        arguments = resume_arguments(config, folder)
        logger.info("%s; resume with %s and a higher %s", reached, arguments, key)
    return trainer, task, trained


def _log_compiler(config: RunConfig) -> None:
    """Log what ``trainer.compile=auto`` is on this device."""
    choice = compile_choice(config)
    if choice.error:
        logger.warning("nothing is compiled, so training is slower: %s", choice.error)
    if config.trainer.compile == "auto" and trains_on_gpu(config.trainer):
        logger.info("trainer.compile=auto is %s on this device", choice.parts)


def resume_arguments(config: RunConfig, folder: Path) -> str:
    """The arguments of ``train`` that resume a run."""
    return f"checkpoint={folder}{' trust=true' if needs_trust(config) else ''}"


def _same_filters(before: DataConfig, now: DataConfig) -> bool:
    return (before.max_length, before.max_ratio) == (now.max_length, now.max_ratio)


def _prepare(config: RunConfig) -> tuple[RunConfig, Task, ResumeState]:
    """Build the task with its data and weights; the config has the measured size of batches."""
    resumable = payload = None
    if config.checkpoint is not None:
        resumable = find_resumable(config.checkpoint)
        payload = resumable.payload
        # The vocabulary is that of the checkpoint.
        check_fixed_keys(replace(portable_part(payload).config, tokenizer=config.tokenizer), config)
    initial = payload
    if payload is None and config.finetune_from is not None:
        from transformer.runs.finetuning import initial_payload

        initial = initial_payload(config, config.finetune_from)
    if config.data.batch_tokens == "auto":
        from transformer.runs.auto_batch_size import with_resolved_budget

        config = with_resolved_budget(config, payload, initial)
    task = make_task(config, initial)
    if payload is not None and _same_filters(portable_part(payload).config.data, config.data):
        # The fraction of pairs that were left out was checked when the run began.
        task.data.max_left_out = 1.0
    task.data.prepare_data()
    task.data.setup("fit")
    if payload is None and initial is not None and config.finetune_from is not None:
        load_weights(task.module.model, initial, config.finetune_from)
        task.module.train()
        logger.info("beginning with the weights of %s", config.finetune_from)
    _log_size(task)
    warn_about_config(config)
    warn_about_vocabulary(config, task.data)
    if is_translation(config.task):
        assert isinstance(task.data, TranslationData)
        warn_about_tokenization(config, task.data.texts("validation").references)
    if resumable is None or payload is None:
        return config, task, ResumeState(None, 0, None)
    done = payload["global_step"]
    loader = loader_state(payload)
    task.data.resume_from(loader)
    logger.info(
        "resuming from %s, after %s", resumable.file, shown_update(done, task.data.epochs(done))
    )
    changed = changes(portable_part(payload).config, config)
    for line in changed:
        logger.info("changed: %s", line)
    if any(line.startswith("decoding.") for line in changed):
        logger.warning(
            "validation scores from here on are of another search: best.ckpt stays until one of "
            "them is higher than all before"
        )
    return config, task, ResumeState(resumable, done, loader)


def _fit(
    config: RunConfig,
    folder: Path,
    task: Task,
    resume_state: ResumeState,
    callbacks: Sequence[Callback],
) -> Trainer:
    """Train; after a divergence, begin again at the last checkpoint with a lower learning rate."""
    resumable = resume_state.checkpoint
    checkpoint = None if resumable is None else resumable.file
    epochs = config.trainer.max_epochs
    updates = -1
    if epochs is not None and epochs >= 0:
        updates = updates_of_epochs(epochs, task.data, resume_state.done, resume_state.loader)
    warn_about_warmup(config, updates)
    selection = task.model_selection(config)
    while True:
        all_callbacks = [MemoryPreflight(task.data), *callbacks]
        trainer = build_trainer(config, folder, all_callbacks, selection, resumable, updates)
        try:
            trainer.fit(task.module, datamodule=task.data, ckpt_path=checkpoint)
            raise_if_stopped(trainer)
            return trainer
        except Diverged as divergence:
            detector = task.module.detector
            text = save_text(divergence, folder, trainer.global_rank, task.data.tokenizer)
            if detector.returned >= config.recovery.returns:
                raise InputError(
                    f"training diverges: {divergence}, after {detector.returned} returns to the "
                    f"last good checkpoint; look at the batch in {text}, lower optimizer.lr, or "
                    "lengthen schedule.warmup"
                ) from divergence
            detector.returned += 1
            resumable = None
            checkpoint = folder / "checkpoints" / "last.ckpt"
            logger.warning(
                "%s: going back to %s with the learning rate times %g",
                divergence,
                checkpoint,
                detector.lr_scale,
            )


def _log_size(task: Task) -> None:
    config = task.module.model.config
    parameters = list(task.module.parameters())
    total = sum(weight.numel() for weight in parameters)
    learns = sum(weight.numel() for weight in parameters if weight.requires_grad)
    source = config.source_vocab_size
    target = config.target_vocab_size
    vocabulary = f"vocabularies of {source:,} (source) and {target:,} (target)"
    if config.front_end is not None:
        vocabulary = f"vectors of {source:,} numbers, and a vocabulary of {target:,}"
    if task.data.tokenizer.joint and source == target:
        vocabulary = f"one vocabulary of {target:,}"
    logger.info(
        "%s parameters%s, %s",
        f"{total:,}",
        f", {learns:,} of them learn" if learns < total else "",
        vocabulary,
    )
