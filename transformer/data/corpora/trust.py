"""Guards against foreign checkpoints: their config may name any file to read."""

import os
from collections.abc import Container, Iterator, Mapping
from typing import Any

from transformer.common.errors import InputError
from transformer.common.own_code import TRUST

_READ = ("root", "train", "validation", "test", "alignment", "cache")
"""Keys of a corpus that name files or folders."""


def paths_outside(data: Mapping[str, Any], prefix: str = "data") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, path) for each URL and each path outside of the working folder."""
    for key in _READ:
        value = data.get(key)
        for path in value if isinstance(value, list | tuple) else [value]:
            here = key == "cache" and path == os.environ.get("TRANSFORMER_CACHE")
            if isinstance(path, str) and not here and _is_outside(path):
                yield f"{prefix}.{key}", path
    corpora = data.get("corpora")
    for name, corpus in corpora.items() if isinstance(corpora, Mapping) else ():
        if isinstance(corpus, Mapping):
            yield from paths_outside(corpus, f"{prefix}.corpora.{name}")


def needs_trust(run: Mapping[str, Any], given: Container[str] = ()) -> list[tuple[str, str]]:
    """The dotted keys, not ``given``, with programs, and files outside of the working folder."""
    metrics = run.get("metrics", {})
    code = [(f"metrics.{key}", metrics.get(key)) for key in ("custom", "comet")]
    code = [*((key, name) for key, name in code if name), *named_classes(run)]
    named = [*paths_outside(run.get("data", {})), *code]
    trusts_all = os.environ.get(TRUST) == "true"
    return [(key, path) for key, path in named if not trusts_all and key not in given]


def named_classes(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The dotted keys and the classes of the user (``MODULE:CLASS``) that a config names."""
    layers = ("encoder_layer", "decoder_layer", "feed_forward")
    model, callbacks = run.get("model", {}), run.get("callbacks", {})
    named = [("task", run.get("task")), *((f"model.{key}", model.get(key)) for key in layers)]
    named += [("callbacks.own", name) for name in callbacks.get("own", ())]
    return [(key, str(name)) for key, name in named if ":" in str(name)]


def require_trust(
    run: Mapping[str, Any],
    trusted: bool,
    whose: object,
    given: Container[str] = (),
    *,
    advice: str = "",
) -> None:
    """Raise InputError if the untrusted config of ``whose`` names code, or files elsewhere."""
    if not trusted and (outside := needs_trust(run, given)):
        names = ", ".join(f"{key}={path}" for key, path in outside)
        raise InputError(
            f"{whose} names {names}: text outside of this folder, or code; {advice}add trust=true "
            f"if you trust the checkpoint, or set {TRUST}=true for all of your own"
        )


def _is_outside(path: str) -> bool:
    return path.startswith(("/", "~")) or "://" in path or "::" in path or ".." in path.split("/")
