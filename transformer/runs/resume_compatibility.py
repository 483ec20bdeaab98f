"""Keys that a run cannot change when it goes on.

It compares plain values of two configs, and reads nothing but what a run was fine-tuned from.
"""

import filecmp
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_WITHOUT_WEIGHTS = frozenset(
    {
        *("dropout", "attention_dropout", "activation_dropout", "layer_drop"),
        *("source_token_dropout", "target_token_dropout"),
        *("attention", "sdpa_backend", "pattern", "decoder_pattern", "window", "global_tokens"),
        *("random_blocks", "random_block_size", "pattern_seed", "max_length"),
    }
)

_HOLDING = ("files", "folder")
"""Corpora of which pairs may be held out."""

_SPLITS = ("validation", "test")


def fixed_key_that_differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """A key that a run cannot change and that differs: it would have no effect, or a false one.

    The model is the one that the weights were trained in, but for what says nothing of them. The
    vocabulary is that of the checkpoint, whatever the tokenizer's keys say; only how strongly
    segmentations are sampled is free. What the run was fine-tuned from is not read again, and may
    have been moved. The best score so far is of the metrics that the run began with, and is not
    comparable with others. What is held out of the training text stays: of another number, some
    would be pairs that were trained on.
    """
    if before.get("task", now["task"]) != now["task"]:
        return "task"
    if not _same_start(before.get("finetune_from"), now.get("finetune_from")):
        return "finetune_from"
    for group in ("tokenizer", "metrics", "model"):
        began = before.get(group)
        if not isinstance(began, Mapping):
            continue
        if group == "model":
            differing = other_weights(began, now[group])
        else:
            free = {"sampling"} if group == "tokenizer" else set()
            said = {name: value for name, value in now[group].items() if name not in free}
            differing = [name for name, value in said.items() if began.get(name, value) != value]
        if differing:
            return f"{group}.{differing[0]}"
    return _held_out_key_that_differs(before.get("data"), now.get("data"))


def other_weights(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Keys of a model that differ and say that weights of before are none of its own.

    One that is null, or left out, differs from no value that it stands for.
    """
    was, is_now = _of_weights(before), _of_weights(now)
    return [
        key
        for key, value in is_now.items()
        if was.get(key, value) != value and before[key] != now[key]
    ]


def _of_weights(model: Mapping[str, Any]) -> dict[str, Any]:
    """What the keys of a model say of its weights, and what they mean where they are null."""
    free = set(_WITHOUT_WEIGHTS)
    if model.get("positions") == "learned":
        free.remove("max_length")
    if model.get("positions") != "relative":
        free |= {"relative_buckets", "relative_max_distance"}
    said = {key: value for key, value in model.items() if key not in free}
    if "head_dim" in said:
        said["head_dim"] = said["head_dim"] or said["d_model"] // said["num_heads"]
    if "num_kv_heads" in said:
        said["num_kv_heads"] = said["num_kv_heads"] or said["num_heads"]
    return said


def _held_out_key_that_differs(before: Any, now: Any) -> str | None:
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return None
    began = dict(_corpora(before))
    for where, data in _corpora(now):
        if data.get("corpus") in _HOLDING and not data.get("streaming"):
            if where not in began:
                # Perhaps by another name, and then it has been trained on.
                if any(data.get(split) is None and data.get(f"{split}_size") for split in _SPLITS):
                    return where
            elif key := _size_that_differs(began[where], data):
                return f"{where}.{key}"
    return None


def _size_that_differs(began: Mapping[str, Any], data: Mapping[str, Any]) -> str | None:
    for split in _SPLITS:
        size = data.get(key := f"{split}_size")
        if data.get(split) is not None:
            continue
        if began.get(key, size) != size:
            return key
        if size and began.get(split) is not None:
            return split
    return None


def _corpora(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The keys of each corpus, with those for all, by what stands before its own."""
    corpora = data.get("corpora")
    if not isinstance(corpora, Mapping):
        yield "data", data
        return
    for name, own in corpora.items():
        said = {key: value for key, value in own.items() if value is not None}
        yield f"data.corpora.{name}", {**data, **said}


def _same_start(before: str | None, now: str | None) -> bool:
    """Whether both are one checkpoint or run directory, by another name, or moved since."""
    if before is None or now is None or before == now:
        return before == now
    was, is_now = Path(before), Path(now)
    if not is_now.exists() or not was.exists():
        return is_now.exists()
    return was.samefile(is_now) or (
        was.is_file() and is_now.is_file() and filecmp.cmp(was, is_now, shallow=False)
    )
