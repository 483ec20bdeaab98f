"""Which run to resume, its config with changes, and the keys that a resumed run cannot change."""

import filecmp
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from transformer.checkpoint.run_directory import (
    CONFIG,
    has_checkpoint,
    is_finished,
    is_locked,
    read_config,
)
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError, did_you_mean, raise_objections
from transformer.common.schema import different_fields
from transformer.data.corpora.resolve import corpus_configs
from transformer.settings.data import DataConfig
from transformer.settings.model import other_weights
from transformer.settings.run import (
    RunConfig,
    changed_config,
    completed,
    dotted_values,
    plain_values,
)

logger = logging.getLogger(__name__)

_NOT_COMPARED = {"checkpoint", "report"}
"""Keys that do not make another run."""

_COPIES = {"seed": "data.seed", "trainer.max_steps": "schedule.total"}
"""Keys, and the keys that are their copies in conf/ (the second in conf/experiment/g2p.yaml).

The config of a checkpoint has only values: a copy changes with its key if both were equal.
"""


def check_no_other_run(folder: Path, *, sweeps: bool = False) -> None:
    """Raise InputError if a new run, or trial of a sweep, would replace another's checkpoints."""
    if not any((folder / "checkpoints").glob("*.ckpt")):
        return
    if sweeps:
        advice = "checkpoint=auto, or give a new run another folder (hydra.sweep.dir=FOLDER)"
    else:
        advice = (
            f"checkpoint={folder} or checkpoint=auto, or give a new run another folder "
            "(hydra.run.dir=FOLDER)"
        )
    raise InputError(f"{folder} holds a run: resume with {advice}")


def resumed_config(
    checkpoint: Path | str,
    given: Mapping[str, Any],
    *,
    trusted: bool = False,
    unknown: Callable[[str, Collection[str]], str] | None = None,
) -> RunConfig:
    """The config of a checkpoint, or of the last of a run directory, to resume from it.

    The tensors of the checkpoint are not read.

    Args:
        checkpoint: A run directory or a file.
        given: Changes, by dotted key, such as ``{"trainer.max_steps": 2000}``.
        trusted: Whether code, and text elsewhere, that the checkpoint names may be used.
        unknown: Makes the message about a key that is not among the known ones.

    Raises:
        InputError: A key is unknown or cannot change, a value is wrong, or trust is missing.
    """
    # These import torch and Lightning, which take seconds: config files do without.
    from transformer.checkpoint.checkpoint import portable_part
    from transformer.training.checkpointing import find_resumable

    checkpoint = Path(checkpoint)
    resumable = find_resumable(checkpoint, tensors=False)
    saved = portable_part(resumable.payload).config
    saved_values = dotted_values(saved)
    raise_objections(_objections(given, saved_values, checkpoint, unknown or _unknown_key))
    require_trust(saved, trusted, resumable.file, given, advice="give it yourself, or ")
    changed = dict(given)
    for key, copy in _COPIES.items():
        if key in given and saved_values[copy] == saved_values[key]:
            changed.setdefault(copy, given[key])
    config = replace(changed_config(saved, changed), checkpoint=checkpoint)
    check_fixed_keys(saved, config)
    return config


def _objections(
    keys: Iterable[str],
    known: Mapping[str, Any],
    checkpoint: Path,
    unknown: Callable[[str, Collection[str]], str],
) -> Iterator[str]:
    for key in keys:
        if key not in known:
            yield unknown(key, known)
        elif isinstance(known[key], Mapping):
            yield (
                f"{key}=… cannot be chosen again: checkpoint={checkpoint} resumes with its own "
                f"config; change single keys, such as {key}.KEY=VALUE"
            )


def _unknown_key(key: str, known: Collection[str]) -> str:
    return f"unknown key {key}{did_you_mean(key, known, cutoff=0.5)}"


def check_fixed_keys(before: RunConfig, now: RunConfig) -> None:
    """Raise InputError if a resumed run has another value of a key that cannot change."""
    key = fixed_key_that_differs(before, now)
    if key is not None:
        raise InputError(f"{key} cannot change: a run resumes with what it began with")


class ResumedOrNew(NamedTuple):
    """A run that is resumed, or new; ``reason`` tells the user which, and why."""

    config: RunConfig
    folder: Path
    reason: str


def resumed_or_new(
    config: RunConfig, folder: Path | str, *, named: bool = True, fit_vocabulary: bool = False
) -> ResumedOrNew:
    """Resume the run in a folder, or begin it: ``checkpoint=auto`` of the command.

    Unless the user has ``named`` the folder, the newest unfinished run of this config in a folder
    beside it is resumed. With ``fit_vocabulary``, the vocabulary of the run to resume may be
    smaller than that of the config, and keeps its size. Raises InputError if a named folder holds
    another run.
    """
    config = completed(config)
    folder = Path(folder)
    if named:
        if not has_checkpoint(folder):
            reason = f"{folder} holds no checkpoint yet: a new run begins there"
            return ResumedOrNew(replace(config, checkpoint=None), folder, reason)
        saved = _saved_config(folder)
        if saved is not None:
            key = fixed_key_that_differs(_comparable(saved, config, fit_vocabulary), config)
            if key is not None:
                raise InputError(
                    f"{folder} holds a run with another {key}; give another folder "
                    f"(hydra.run.dir=), or the same {key}"
                )
        return _resumed(config, folder, saved, f"resuming {folder}")
    unfinished: list[tuple[float, Path, RunConfig]] = []
    for run in folder.parent.glob("*"):
        with suppress(OSError):  # a folder of another user
            saved = _config_if_unfinished(run)
            if saved and not changes(_comparable(saved, config, fit_vocabulary), config):
                unfinished.append((_last_change(run), run, saved))
    if not unfinished:
        reason = "no unfinished run has this config: a new one begins"
        return ResumedOrNew(replace(config, checkpoint=None), folder, reason)
    _, run, saved = max(unfinished, key=lambda candidate: candidate[:2])
    reason = f"resuming {run}, the newest unfinished run of this config"
    return _resumed(config, run, saved, reason)


def _resumed(config: RunConfig, run: Path, saved: RunConfig | None, reason: str) -> ResumedOrNew:
    if saved is not None and saved.tokenizer.vocab_size is not None:
        config = _with_vocabulary(config, saved.tokenizer.vocab_size)
    return ResumedOrNew(replace(config, checkpoint=run), run, reason)


def _with_vocabulary(config: RunConfig, size: int) -> RunConfig:
    return replace(config, tokenizer=replace(config.tokenizer, vocab_size=size))


def _comparable(saved: RunConfig, config: RunConfig, fit_vocabulary: bool) -> RunConfig:
    """The config of a run; with ``fit_vocabulary``, a smaller vocabulary counts as the same one."""
    size = saved.tokenizer.vocab_size
    wanted = config.tokenizer.vocab_size
    if fit_vocabulary and size is not None and wanted is not None and size < wanted:
        return _with_vocabulary(saved, wanted)
    return saved


def _config_if_unfinished(run: Path) -> RunConfig | None:
    """The config of a run that can be resumed and that no process trains; None for another."""
    if not run.is_dir() or not has_checkpoint(run) or is_finished(run) or is_locked(run):
        return None
    return _saved_config(run)


def _saved_config(run: Path) -> RunConfig | None:
    """The config in a run directory; None, with a warning, if it cannot be read."""
    config = read_config(run)
    if config is None:
        logger.warning("checkpoint=auto: %s is missing or damaged", run / CONFIG)
    return config


def _last_change(run: Path) -> float:
    last = run / "checkpoints" / "last.ckpt"
    return last.stat().st_mtime if last.is_file() else 0.0


def changes(before: RunConfig, now: RunConfig) -> list[str]:
    """The differences of two configs: one line per dotted key."""
    return list(_changes(plain_values(before), plain_values(now), ""))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        old = before.get(key)
        new = now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _changes(old, new, f"{prefix}{key}.")
        elif old != new and f"{prefix}{key}" not in _NOT_COMPARED:
            yield f"{prefix}{key}: {old} before, {new} now"


def fixed_key_that_differs(before: RunConfig, now: RunConfig) -> str | None:
    """The first key that differs although a resumed run cannot change it; None if there is none.

    The checkpoint fixes the vocabulary, and the keys of the model with an effect on the weights.
    Scores under other metrics cannot be compared with the best score so far. With another number
    of held-out pairs, some of them would have been trained on.
    """
    if before.task != now.task:
        return "task"
    if not _same_file(before.finetune_from, now.finetune_from):
        return "finetune_from"
    tokenizer = replace(before.tokenizer, sampling=now.tokenizer.sampling)
    keys = [f"tokenizer.{key}" for key in different_fields(tokenizer, now.tokenizer)]
    keys += [f"metrics.{key}" for key in different_fields(before.metrics, now.metrics)]
    keys += [f"model.{key}" for key in other_weights(before.model, now.model)]
    return keys[0] if keys else _held_out_key_that_differs(before.data, now.data)


def _held_out_key_that_differs(before: DataConfig, now: DataConfig) -> str | None:
    saved = _corpora(before)
    for prefix, corpus in _corpora(now).items():
        if corpus.corpus not in ("files", "folder") or corpus.streaming:
            continue
        former = saved.get(prefix)
        for split in ("validation", "test"):
            if getattr(corpus, split) is not None:
                continue
            size: int = getattr(corpus, f"{split}_size")
            if former is None and size:
                # A corpus under another name may have been trained on.
                return prefix
            if former is not None and getattr(former, f"{split}_size") != size:
                return f"{prefix}.{split}_size"
            if former is not None and size and getattr(former, split) is not None:
                return f"{prefix}.{split}"
    return None


def _corpora(data: DataConfig) -> dict[str, DataConfig]:
    """The settings of each corpus, with those for all corpora, by the prefix of its keys."""
    if data.corpora is None:
        return {"data": data}
    return {f"data.corpora.{name}": corpus for name, corpus in corpus_configs(data).items()}


def _same_file(before: Path | None, now: Path | None) -> bool:
    """Whether both name one checkpoint or run directory, which may have been moved since."""
    if before is None or now is None or before == now:
        return before == now
    if not now.exists() or not before.exists():
        return now.exists()
    return before.samefile(now) or (
        before.is_file() and now.is_file() and filecmp.cmp(before, now, shallow=False)
    )
