"""Going on with a run: its own config, and the keys that the user changes.

Of what else the checkpoint holds it knows whether training can go on from it.
"""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import nearest_key
from transformer.errors import InputError

TAKEN_FROM = {"precision": ("trainer.precision",)}
"""Where conf/ hands a value on; the config of a checkpoint is resolved and no longer knows."""


def named_checkpoint(arguments: Sequence[str]) -> Path | None:
    """The path in ``checkpoint=PATH``, if there is one."""
    for argument in reversed(arguments):
        key, _, value = argument.partition("=")
        if key == "checkpoint" and value not in ("", "null"):
            return Path(value)
    return None


def run_folder_of(checkpoint: Path) -> Path:
    """Where the run lives that a checkpoint, or a run directory, belongs to."""
    if checkpoint.is_file():
        inside = checkpoint.resolve().parent
        return inside.parent if inside.name == "checkpoints" else inside
    return checkpoint.resolve()


def resumed_config(checkpoint: Path, arguments: Sequence[str]) -> DictConfig:
    """The config that the checkpoint carries, with the user's ``KEY=VALUE`` on top.

    Raises:
        InputError: There is no checkpoint, training cannot go on from it, or an argument does not
            name a key of its config.
    """
    from transformer.model.checkpoint import PORTABLE, find_checkpoint, read_payload

    file = find_checkpoint(checkpoint, "last")
    payload = read_payload(file)
    if "optimizer_states" not in payload:
        raise InputError(
            f"{file} holds weights alone; training goes on from a run directory, best.ckpt or "
            "last.ckpt"
        )
    config = OmegaConf.create(payload[PORTABLE]["config"])
    for override in _parsed(arguments):
        key = override.key_or_group
        if key.startswith("hydra."):
            raise InputError(f"{key} cannot change: a run goes on in its own directory")
        old = OmegaConf.select(config, key, default=KeyError)
        if old is KeyError:
            raise InputError(f"unknown key {key} {nearest_key(key, config)}".strip())
        if isinstance(old, DictConfig):
            raise InputError(
                f"{key}=… cannot be chosen anew: checkpoint={checkpoint} goes on with its own "
                f"config; change single keys, such as {key}.KEY=VALUE"
            )
        for place in (key, *TAKEN_FROM.get(key, ())):
            OmegaConf.update(config, place, override.value())
    return config


def _parsed(arguments: Sequence[str]) -> list[Override]:
    try:
        overrides = OverridesParser.create().parse_overrides(list(arguments))
    except HydraException as error:
        raise InputError(f"{' '.join(str(error).split())}; give KEY=VALUE") from error
    for override in overrides:
        if override.is_delete() or override.is_sweep_override():
            raise InputError(f"{override.input_line} does not set a key to a value")
    return overrides
