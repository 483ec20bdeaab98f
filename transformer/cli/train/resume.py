"""Resuming a run: its own config with the keys that the user changes, and ``checkpoint=auto``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from transformer.checkpoint.config_file import read_config
from transformer.cli.config.arguments import nearest_key, parse_override
from transformer.common.errors import InputError, raise_objections
from transformer.common.files import given_path
from transformer.common.schema import typed_value
from transformer.runs.resume import find_run_to_resume, fixed_key_that_differs
from transformer.settings.run import RunConfig, plain_values, run_config

if TYPE_CHECKING:
    from transformer.training.checkpointing.training_state import Resumable

COPIES = {"seed": "data.seed"}
"""Keys, and the keys that take their value in conf/. The config of a checkpoint has plain values: a
copy changes with its key unless it had another value."""

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


def resumed_config(
    checkpoint: Path, arguments: Sequence[str], resume: "Resumable | None" = None
) -> RunConfig:
    """The config of the checkpoint, with the user's ``KEY=VALUE`` on top where a key may change.

    ``resume`` is the checkpoint, if it has been read.
    """
    from transformer.checkpoint.checkpoint import portable_part
    from transformer.data.corpora.trust import require_trust
    from transformer.training.checkpointing.training_state import find_resumable

    resume = resume or find_resumable(checkpoint)
    saved = portable_part(resume.payload).config
    before = plain_values(saved)
    # A path may hold signs that Hydra reads as more than text.
    texts = [one for one in arguments if one.partition("=")[0] != "checkpoint"]
    overrides = map(parse_override, texts)
    given: dict[str, Any] = {each.key_or_group: each.value() for each in overrides}
    trusted = typed_value(given.pop(TRUST, False), bool, TRUST)
    given = {key: value for key, value in given.items() if key not in SHORT} | {
        SHORT[key]: given.get(SHORT[key], given[key]) for key in SHORT.keys() & given.keys()
    }
    raise_objections(reason for key in given for reason in _objections(key, before, checkpoint))
    require_trust(saved, trusted, resume.file, given, advice="give it yourself, or ")
    values = deepcopy(before)
    for key, value in given.items():
        _set(values, key, value)
        copy = COPIES.get(key)
        if copy is not None and copy not in given and _get(before, copy) == _get(before, key):
            _set(values, copy, value)
    config = replace(run_config(values), checkpoint=checkpoint)
    if fixed := fixed_key_that_differs(replace(saved, checkpoint=checkpoint), config):
        raise InputError(f"{fixed} cannot change: a run resumes with what it began with")
    return config


def _get(values: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; KeyError if there is none."""
    for name in key.split("."):
        if not isinstance(values, Mapping):
            raise KeyError(key)
        values = values[name]
    return values


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    group, _, name = key.rpartition(".")
    (_get(values, group) if group else values)[name] = value


def _objections(key: str, values: dict[str, Any], checkpoint: Path) -> Iterator[str]:
    try:
        old = _get(values, key)
    except KeyError:
        old = KeyError
    if key.startswith("hydra."):
        yield f"{key} cannot change: a run resumes in its own directory"
    elif isinstance(old, Mapping) or key == "experiment":
        keys = f"{'GROUP' if old is KeyError else key}.KEY=VALUE"
        reason = f"cannot be chosen again: checkpoint={checkpoint} resumes with its own config"
        yield f"{key}=… {reason}; change single keys, such as {keys}"
    elif old is KeyError:
        yield f"unknown key {key}{nearest_key(key, OmegaConf.create(values))}"


def auto_run(
    config: RunConfig, folder: Path, *, named: bool, sized: bool
) -> tuple[RunConfig, Path]:
    """The config and directory of ``checkpoint=auto``: of a run to resume, or the new ``folder``.

    Runs beside a folder that the user has not ``named`` may be resumed. Unless the size of the
    vocabulary is given (``sized``), that of the run replaces it in the config.
    """
    largest = None if sized else config.tokenizer.vocab_size
    run, reason = find_run_to_resume(config, folder, named=named, largest=largest)
    print(f"checkpoint=auto: {reason}", file=sys.stderr)
    before = None if run is None else read_config(run)
    if before is not None and before.tokenizer.vocab_size is not None:
        # It may be smaller than that of the call.
        size = before.tokenizer.vocab_size
        config = replace(config, tokenizer=replace(config.tokenizer, vocab_size=size))
    return config, run or folder
