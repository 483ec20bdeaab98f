"""What the config of a checkpoint may not name without trust: files elsewhere, and code."""

import os
from collections.abc import Container, Iterator

from transformer.common.errors import InputError
from transformer.common.own_code import TRUST, trusts_all
from transformer.settings.data import CorpusConfig, DataConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig


def paths_outside(
    data: DataConfig | CorpusConfig, prefix: str = "data"
) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, path) for each URL and each path outside of the working folder."""
    texts = {
        "root": data.root,
        "train": data.train,
        "validation": data.validation,
        "test": data.test,
        "alignment": data.alignment,
    }
    for key, paths in texts.items():
        for path in [paths] if isinstance(paths, str) else paths or ():
            if _is_outside(path):
                yield f"{prefix}.{key}", path
    if isinstance(data, DataConfig):
        if data.cache != os.environ.get("TRANSFORMER_CACHE") and _is_outside(data.cache):
            yield f"{prefix}.cache", data.cache
        for name, corpus in (data.corpora or {}).items():
            yield from paths_outside(corpus, f"{prefix}.corpora.{name}")


def needs_trust(config: RunConfig, user_keys: Container[str] = ()) -> list[tuple[str, str]]:
    """Dotted keys, and their values, that name programs, or files outside of the working folder.

    Keys that the user has set, ``user_keys``, are trusted.
    """
    metrics = {"custom": config.metrics.custom, "comet": config.metrics.comet}
    named = [*paths_outside(config.data)]
    named += [(f"metrics.{key}", program) for key, program in metrics.items() if program]
    named += named_classes(config)
    return [] if trusts_all() else [(key, path) for key, path in named if key not in user_keys]


def named_classes(config: RunConfig) -> list[tuple[str, str]]:
    """The dotted keys and the classes of the user (``MODULE:CLASS``) that a config names."""
    named = [("task", config.task), *named_layers(config.model)]
    named += [("callbacks.own", name) for name in config.callbacks.own]
    return [(key, name) for key, name in named if ":" in name]


def named_layers(model: ModelConfig) -> list[tuple[str, str]]:
    """The dotted keys and the layers of the user (``MODULE:CLASS``) that a model has."""
    layers = {
        "encoder_layer": model.encoder_layer,
        "decoder_layer": model.decoder_layer,
        "feed_forward": model.feed_forward,
    }
    return [(f"model.{key}", name) for key, name in layers.items() if name and ":" in name]


def require_trust(
    config: RunConfig,
    trusted: bool,
    whose: object,
    user_keys: Container[str] = (),
    *,
    advice: str = "",
) -> None:
    """Raise InputError if the untrusted config of ``whose`` names code, or files elsewhere."""
    if trusted:
        return
    outside = needs_trust(config, user_keys)
    if outside:
        names = ", ".join(f"{key}={path}" for key, path in outside)
        raise InputError(
            f"{whose} names {names}: code, a URL, or a path that is absolute or leads out of this "
            f"folder; {advice}add trust=true "
            f"if you trust the checkpoint, or set {TRUST}=true for all of your own"
        )


def _is_outside(path: str) -> bool:
    return path.startswith(("/", "~")) or "://" in path or "::" in path or ".." in path.split("/")
