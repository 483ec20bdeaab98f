"""Arguments of a command that resumes a run: the checkpoint, and keys that change."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformer.cli.config.arguments import nearest_key, parse_override
from transformer.common.files import given_path
from transformer.common.schema import typed_value
from transformer.runs.resume import resumed_config
from transformer.settings.run import RunConfig

SHORT = {"precision": "trainer.precision"}
"""Keys of conf/train.yaml that stand for another."""

TRUST = "trust"
"""``trust=true``: text and code that the checkpoint names, wherever they are, may be used."""

AUTO = "auto"


def named_checkpoint(arguments: Sequence[str]) -> Path | None:
    """The path in ``checkpoint=PATH``, if there is one."""
    for argument in reversed(arguments):
        key, _, value = argument.partition("=")
        if key == "checkpoint" and value not in ("", "null", AUTO):
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            return given_path(value[1:-1] if quoted else value)
    return None


def config_of_arguments(checkpoint: Path, arguments: Sequence[str]) -> RunConfig:
    """The config of the checkpoint, with the user's ``KEY=VALUE`` on top where a key may change."""
    # A path may hold signs that Hydra reads as more than text.
    texts = [one for one in arguments if one.partition("=")[0] != "checkpoint"]
    overrides = map(parse_override, texts)
    given: dict[str, Any] = {each.key_or_group: each.value() for each in overrides}
    trusted = typed_value(given.pop(TRUST, False), bool, TRUST)
    given = {key: value for key, value in given.items() if key not in SHORT} | {
        SHORT[key]: given.get(SHORT[key], given[key]) for key in SHORT.keys() & given.keys()
    }
    unknown = partial(_unknown_key, checkpoint)
    return resumed_config(checkpoint, given, trusted=trusted, unknown=unknown)


def _unknown_key(checkpoint: Path, key: str, known: Collection[str]) -> str:
    """The message about a key that only the command knows: of Hydra, or a group; or nobody."""
    if key.startswith("hydra."):
        return f"{key} cannot change: a run resumes in its own directory"
    if key == "experiment":
        return (
            f"experiment=… cannot be chosen again: checkpoint={checkpoint} resumes with its own "
            "config; change single keys, such as GROUP.KEY=VALUE"
        )
    return f"unknown key {key}{nearest_key(key, known)}"
