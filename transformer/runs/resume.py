"""The run to resume, its config with changes, and the keys that a resumed run cannot change."""

import filecmp
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from transformer.checkpoint.config_file import CONFIG, read_config
from transformer.checkpoint.trust import require_trust
from transformer.common.errors import InputError, did_you_mean, raise_objections
from transformer.data.corpora.resolve import corpus_configs
from transformer.settings.data import DataConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import (
    OF_THE_TEXT,
    RunConfig,
    changed_config,
    dotted_values,
    plain_values,
)
from transformer.training.checkpointing.run_directory import has_checkpoint, is_finished, is_locked

T = TypeVar("T")

logger = logging.getLogger(__name__)

_WITHOUT_WEIGHTS = frozenset(
    {
        *OF_THE_TEXT,
        "activation_dropout",
        "attention",
        "attention_dropout",
        "decoder_pattern",
        "dropout",
        "global_tokens",
        "layer_drop",
        "max_length",
        "pattern",
        "pattern_seed",
        "random_block_size",
        "random_blocks",
        "sdpa_backend",
        "source_token_dropout",
        "target_token_dropout",
        "window",
    }
)
"""Settings of a model that do not change its weights; the tokenizer has the sizes."""

_NOT_COMPARED = {"checkpoint", "report"}
"""Keys that do not make another run."""

_COPIES = {"seed": "data.seed"}
"""Keys, and the keys that take their value in conf/. The config of a checkpoint has plain values: a
copy changes with its key unless it had another value."""


def check_no_other_run(folder: Path, *, sweeps: bool = False) -> None:
    """Raise InputError if a new run, or trial of a sweep, would replace another's checkpoints."""
    if any((folder / "checkpoints").glob("*.ckpt")):
        again, key = ("", "sweep") if sweeps else (f"checkpoint={folder} or ", "run")
        raise InputError(
            f"{folder} holds a run: resume with {again}checkpoint=auto, or give a new run "
            f"another folder (hydra.{key}.dir=FOLDER)"
        )


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
    from transformer.training.checkpointing.training_state import find_resumable

    checkpoint = Path(checkpoint)
    resume = find_resumable(checkpoint, tensors=False)
    saved = portable_part(resume.payload).config
    before = dotted_values(saved)
    raise_objections(_objections(given, before, checkpoint, unknown or _unknown_key))
    require_trust(saved, trusted, resume.file, given, advice="give it yourself, or ")
    copies = {
        copy: given[key]
        for key, copy in _COPIES.items()
        if key in given and copy not in given and before[copy] == before[key]
    }
    config = replace(changed_config(saved, {**given, **copies}), checkpoint=checkpoint)
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
    if fixed := fixed_key_that_differs(before, now):
        raise InputError(f"{fixed} cannot change: a run resumes with what it began with")


class ResumedOrNew(NamedTuple):
    """The config and the directory of a run that is resumed, or new; and which of both, and why."""

    config: RunConfig
    folder: Path
    reason: str


def resumed_or_new(
    config: RunConfig, folder: Path | str, *, named: bool = True, fit_vocabulary: bool = False
) -> ResumedOrNew:
    """Resume the run in a folder, or begin it: ``checkpoint=auto`` of the command.

    Unless the user has ``named`` the folder, an unfinished run of this config in a folder beside it
    is resumed. With ``fit_vocabulary`` the size of the vocabulary may be that of the run instead.
    Raises InputError if the folder holds another run.
    """
    folder, largest = Path(folder), config.tokenizer.vocab_size if fit_vocabulary else None
    run, reason = find_run_to_resume(config, folder, named=named, largest=largest)
    before = None if run is None else read_config(run)
    if before is not None and before.tokenizer.vocab_size is not None:
        # It may be smaller than that of the call.
        size = before.tokenizer.vocab_size
        config = replace(config, tokenizer=replace(config.tokenizer, vocab_size=size))
    folder = run or folder
    checkpoint = folder if has_checkpoint(folder) else None
    return ResumedOrNew(replace(config, checkpoint=checkpoint), folder, reason)


def find_run_to_resume(
    config: RunConfig, folder: Path, *, named: bool, largest: int | None = None
) -> tuple[Path | None, str]:
    """Find the run of ``checkpoint=auto``: its directory, None for a new run, and the reason.

    If the user has ``named`` the folder of the new run, another run in it is an InputError;
    otherwise the run directories beside it may be resumed. With ``largest``, a smaller vocabulary
    counts as one of this size.
    """
    if named:
        if not has_checkpoint(folder):
            return None, f"{folder} holds no checkpoint yet: a new run begins there"
        before = _former_config(folder, largest)
        if before is not None and (key := fixed_key_that_differs(before, config)):
            raise InputError(
                f"{folder} holds a run with another {key}; give another folder "
                f"(hydra.run.dir=), or the same {key}"
            )
        return folder, f"resuming {folder}"
    alike = [run for run in folder.parent.glob("*") if _is_unfinished(run, config, largest)]
    if not alike:
        return None, "no unfinished run has this config: a new one begins"
    newest = max(alike, key=lambda run: (_last_change(run), run))
    return newest, f"resuming {newest}, the newest unfinished run of this config"


def _is_unfinished(run: Path, config: RunConfig, largest: int | None) -> bool:
    with suppress(OSError):  # a folder of another user
        if run.is_dir() and has_checkpoint(run) and not (is_finished(run) or is_locked(run)):
            before = _former_config(run, largest)
            return before is not None and not changes(before, config)
    return False


def _former_config(run: Path, largest: int | None) -> RunConfig | None:
    """The config in a run directory; None, with a note, if it cannot be read."""
    config = read_config(run)
    if config is None:
        logger.warning("checkpoint=auto: %s is missing or damaged", run / CONFIG)
        return None
    size = config.tokenizer.vocab_size
    if largest is not None and size is not None and size < largest:
        return replace(config, tokenizer=replace(config.tokenizer, vocab_size=largest))
    return config


def _last_change(run: Path) -> float:
    last = run / "checkpoints" / "last.ckpt"
    return last.stat().st_mtime if last.is_file() else 0.0


def changes(before: RunConfig, now: RunConfig) -> list[str]:
    """The differences of two configs: one line per dotted key."""
    return list(_changes(plain_values(before), plain_values(now), ""))


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
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
    for key in different_fields(tokenizer, now.tokenizer):
        return f"tokenizer.{key}"
    for key in different_fields(before.metrics, now.metrics):
        return f"metrics.{key}"
    for key in other_weights(before.model, now.model):
        return f"model.{key}"
    return _held_out_key_that_differs(before.data, now.data)


def different_fields(before: T, now: T) -> list[str]:
    """The names of the fields of two configs of one class that differ."""
    names = [field.name for field in fields(now)]  # type: ignore[arg-type]
    return [name for name in names if getattr(before, name) != getattr(now, name)]


def other_weights(before: ModelConfig, now: ModelConfig) -> list[str]:
    """Keys of a model that differ and need other weights; null is the value that it stands for."""
    return [
        key
        for key in different_fields(_explicit(before), _explicit(now))
        if key in weight_keys(now) and getattr(before, key) != getattr(now, key)
    ]


def weight_keys(model: ModelConfig) -> list[str]:
    """The keys of a model that decide which weights it has, and what they mean."""
    without = set(_WITHOUT_WEIGHTS)
    if model.positions == "learned":
        without.remove("max_length")
    if model.positions != "relative":
        without |= {"relative_buckets", "relative_max_distance"}
    return [field.name for field in fields(model) if field.name not in without]


def _explicit(model: ModelConfig) -> ModelConfig:
    return replace(model, head_dim=model.d_k, num_kv_heads=model.num_kv_heads or model.num_heads)


def _held_out_key_that_differs(before: DataConfig, now: DataConfig) -> str | None:
    former = _corpora(before)
    for where, corpus in _corpora(now).items():
        if corpus.corpus not in ("files", "folder") or corpus.streaming:
            continue
        old = former.get(where)
        for split in ("validation", "test"):
            key = f"{split}_size"
            size: int = getattr(corpus, key)
            if getattr(corpus, split) is not None:
                continue
            if old is None and size:
                # A corpus under another name may have been trained on.
                return where
            if old is not None and getattr(old, key) != size:
                return f"{where}.{key}"
            if old is not None and size and getattr(old, split) is not None:
                return f"{where}.{split}"
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
