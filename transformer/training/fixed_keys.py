"""Keys that a run cannot change when it goes on.

It compares plain values of two configs, and reads nothing but what a run was fine-tuned from.
"""

import filecmp
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_HOLDING = ("files", "folder")
"""Corpora of which pairs may be held out."""


def fixed_key_that_differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """A key that a run cannot change and that differs: it would have no effect, or a false one.

    The vocabulary is that of the checkpoint, whatever the tokenizer's keys say; only how strongly
    segmentations are sampled is free. What the run was fine-tuned from is not read again, and may
    have been moved. The best score so far is of the metrics that the run began with, and is not
    comparable with others. What is held out of the training text stays: of another number, some
    would be pairs that were trained on.
    """
    if before.get("task", now["task"]) != now["task"]:
        return "task"
    if not _same_start(before.get("finetune_from"), now.get("finetune_from")):
        return "finetune_from"
    for group, free in (("tokenizer", "sampling"), ("metrics", None)):
        began = before.get(group)
        if not isinstance(began, Mapping):
            continue
        for name, value in now[group].items():
            if name != free and began.get(name, value) != value:
                return f"{group}.{name}"
    return _held_out_key_that_differs(before.get("data"), now.get("data"))


def _held_out_key_that_differs(before: Any, now: Any) -> str | None:
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return None
    began = dict(_corpora(before))
    for where, data in _corpora(now):
        holds = data.get("corpus") in _HOLDING and not data.get("streaming")
        if where not in began or not holds:
            continue
        for split in ("validation", "test"):
            size = data.get(key := f"{split}_size")
            if data.get(split) is not None:
                continue
            if began[where].get(key, size) != size:
                return f"{where}.{key}"
            if size and began[where].get(split) is not None:
                return f"{where}.{split}"
            # As it was before there was such a key.
            if size and began[where].get("held_out_by", "seed") != data.get("held_out_by"):
                return "data.held_out_by"
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
