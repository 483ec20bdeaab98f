"""The run that a command resumes, and the keys that a resumed run cannot change."""

import filecmp
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.schema import FORMER
from transformer.runs.config_file import CONFIG, read_config
from transformer.training.checkpointing.run_directory import has_checkpoint, is_finished, is_locked

_WITHOUT_WEIGHTS = frozenset(
    {
        *("dropout", "attention_dropout", "activation_dropout", "layer_drop"),
        *("source_token_dropout", "target_token_dropout"),
        *("attention", "sdpa_backend", "pattern", "decoder_pattern", "window", "global_tokens"),
        *("random_blocks", "random_block_size", "pattern_seed", "max_length"),
    }
)
"""Keys of a model that do not change its weights."""

_NOT_COMPARED = {"checkpoint", "data.packing", "report", *FORMER}
"""Keys that do not make another run; `data.packing` was removed, and is false."""


def check_no_other_run(folder: Path, *, sweeps: bool = False) -> None:
    """Raise InputError if a new run, or trial of a sweep, would replace another's checkpoints."""
    if any((folder / "checkpoints").glob("*.ckpt")):
        again, key = ("", "sweep") if sweeps else (f"checkpoint={folder} or ", "run")
        raise InputError(
            f"{folder} holds a run: resume with {again}checkpoint=auto, or begin another with "
            f"hydra.{key}.dir=FOLDER"
        )


def find_run_to_resume(
    config: Mapping[str, Any], folder: Path, *, named: bool, largest: int | None = None
) -> tuple[Path | None, str]:
    """Find the run of ``checkpoint=auto``: its directory, None for a new run, and the reason.

    If the user has ``named`` the folder of the new run, another run in it is an InputError;
    otherwise the run directories beside it may be resumed. With ``largest``, a smaller vocabulary
    counts as one of this size.
    """
    if named:
        if not has_checkpoint(folder):
            return None, f"{folder} holds no checkpoint yet: a new run begins there"
        if key := fixed_key_that_differs(_former_config(folder, largest), config):
            raise InputError(
                f"{folder} holds a run with another {key}; give another hydra.run.dir, or the "
                f"same {key}"
            )
        return folder, f"resuming {folder}"
    alike = [run for run in folder.parent.glob("*") if _is_unfinished(run, config, largest)]
    if not alike:
        return None, "no unfinished run has this config: a new one begins"
    newest = max(alike, key=lambda run: (_last_change(run), run))
    return newest, f"resuming {newest}, the newest unfinished run of this config"


def _is_unfinished(run: Path, config: Mapping[str, Any], largest: int | None) -> bool:
    with suppress(OSError):  # a folder of another user
        if run.is_dir() and has_checkpoint(run) and not (is_finished(run) or is_locked(run)):
            return not changes(_former_config(run, largest), config)
    return False


def _former_config(run: Path, largest: int | None) -> dict[str, Any]:
    """The config in a run directory; empty, with a note, if it cannot be read."""
    values = read_config(run)
    if values is None:
        print(f"checkpoint=auto: {run / CONFIG} is missing or damaged", file=sys.stderr)
        return {}
    if any("wer" in (value, *_listed(value)) for value in _group(values, "metrics").values()):
        # Older versions gave this name to another metric; the checkpoint knows.
        from transformer.checkpoint.checkpoint import PORTABLE, find_last

        try:
            values["metrics"] = find_last(run)[1][PORTABLE]["config"]["metrics"]
        except InputError as error:
            print(f"checkpoint=auto: {error}", file=sys.stderr)
            return {}
    size = vocab_size(values)
    if largest is not None and size is not None and size < largest:
        values["tokenizer"] = {**values["tokenizer"], "vocab_size": largest}
    return values


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _last_change(run: Path) -> float:
    last = run / "checkpoints" / "last.ckpt"
    return last.stat().st_mtime if last.is_file() else 0.0


def vocab_size(values: Mapping[str, Any] | None) -> int | None:
    """The size in the plain values of a config, if it is a number."""
    size = _group(values or {}, "tokenizer").get("vocab_size")
    return size if type(size) is int else None


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The differences of two configs: one line per dotted key."""
    lines = []
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += changes(old, new, f"{prefix}{key}.")
        elif old != new and f"{prefix}{key}" not in _NOT_COMPARED:
            lines.append(f"{prefix}{key}: {old} before, {new} now")
    return lines


def fixed_key_that_differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first key that differs although a resumed run cannot change it; None if there is none.

    The checkpoint fixes the vocabulary, and the keys of the model with an effect on the weights.
    Scores under other metrics cannot be compared with the best score so far. With another number
    of held-out pairs, some of them would have been trained on.
    """
    if before.get("task", now.get("task")) != now.get("task"):
        return "task"
    if not _same_file(before.get("finetune_from"), now.get("finetune_from")):
        return "finetune_from"
    for group in ("tokenizer", "metrics"):
        old = _group(before, group)
        for key, value in _group(now, group).items():
            if f"{group}.{key}" != "tokenizer.sampling" and old.get(key, value) != value:
                return f"{group}.{key}"
    for key in other_weights(_group(before, "model"), _group(now, "model")):
        return f"model.{key}"
    return _held_out_key_that_differs(_group(before, "data"), _group(now, "data"))


def _group(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    group = config.get(name)
    return group if isinstance(group, Mapping) else {}


def other_weights(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys of a model that differ and need other weights; null is the value that it stands for."""
    old, new = _with_weights(before), _with_weights(now)
    return [
        key
        for key, value in new.items()
        if old.get(key, value) != value and before[key] != now[key]
    ]


def _with_weights(model: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a model that determine its weights, with the values that null stands for."""
    free = set(_WITHOUT_WEIGHTS)
    if model.get("positions") == "learned":
        free.remove("max_length")
    if model.get("positions") != "relative":
        free |= {"relative_buckets", "relative_max_distance"}
    values = {key: value for key, value in model.items() if key not in free}
    if "head_dim" in values:
        values["head_dim"] = values["head_dim"] or values["d_model"] // values["num_heads"]
    if "num_kv_heads" in values:
        values["num_kv_heads"] = values["num_kv_heads"] or values["num_heads"]
    return values


def _held_out_key_that_differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    corpora = dict(_corpora(before))
    for where, data in _corpora(now) if before else ():
        if data.get("corpus") not in ("files", "folder") or data.get("streaming"):
            continue
        old = corpora.get(where)
        for split in (name for name in ("validation", "test") if data.get(name) is None):
            size = data.get(key := f"{split}_size")
            if old is None and size:
                # A corpus under another name may have been trained on.
                return where
            if old is not None and old.get(key, size) != size:
                return f"{where}.{key}"
            if old is not None and size and old.get(split) is not None:
                return f"{where}.{split}"
    return None


def _corpora(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The keys of each corpus, with those for all corpora, by the prefix of its keys."""
    corpora = data.get("corpora")
    if not isinstance(corpora, Mapping):
        yield "data", data
        return
    for name, own in corpora.items():
        given = {key: value for key, value in own.items() if value is not None}
        yield f"data.corpora.{name}", {**data, **given}


def _same_file(before: str | None, now: str | None) -> bool:
    """Whether both name one checkpoint or run directory, which may have been moved since."""
    if before is None or now is None or before == now:
        return before == now
    old, new = Path(before), Path(now)
    if not new.exists() or not old.exists():
        return new.exists()
    return old.samefile(new) or (
        old.is_file() and new.is_file() and filecmp.cmp(old, new, shallow=False)
    )
