"""Resuming a run: its own config with the keys that the user changes, and ``checkpoint=auto``."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.arguments import nearest_key, parse_override
from transformer.common.errors import InputError, errors_name, raise_objections
from transformer.common.files import given_path
from transformer.common.schema import typed_value
from transformer.runs.config_file import read_config
from transformer.runs.resume import find_run_to_resume, fixed_key_that_differs, vocab_size

if TYPE_CHECKING:
    from transformer.training.checkpointing.training_state import Resumable

COPIES = {
    "precision": "trainer.precision",
    "seed": "data.seed",
    "trainer.max_steps": "schedule.total",
}
"""Keys, and the keys that take their value in conf/. The config of a checkpoint has plain values: a
copy changes with its key unless it had another value."""

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
) -> DictConfig:
    """The config of the checkpoint, with the user's ``KEY=VALUE`` on top where a key may change.

    ``resume`` is the checkpoint, if it has been read.
    """
    from transformer.checkpoint.checkpoint import PORTABLE
    from transformer.data.corpora.trust import require_trust
    from transformer.settings.run import run_config
    from transformer.training.checkpointing.training_state import find_resumable

    resume = resume or find_resumable(checkpoint)
    file, saved = resume.file, resume.payload[PORTABLE]["config"]
    with errors_name(file):
        run_config(saved)
    before = OmegaConf.create(saved)
    config = before.copy()
    # A path may hold signs that Hydra reads as more than text.
    texts = [one for one in arguments if one.partition("=")[0] != "checkpoint"]
    overrides = map(parse_override, texts)
    given: dict[str, Any] = {each.key_or_group: each.value() for each in overrides}
    trusted = typed_value(given.pop(TRUST, False), bool, TRUST)
    raise_objections(reason for key in given for reason in _objections(key, config, checkpoint))
    given["checkpoint"] = str(checkpoint)
    require_trust(saved, trusted, file, given, advice="give it yourself, or ")
    for key, value in given.items():
        OmegaConf.update(config, key, value)
        copy = COPIES.get(key)
        if copy is None or copy in given:
            continue
        if OmegaConf.select(before, copy) == OmegaConf.select(before, key):
            OmegaConf.update(config, copy, value)
    if fixed := fixed_key_that_differs(before, config):
        raise InputError(f"{fixed} cannot change: a run resumes with what it began with")
    return config


def _objections(key: str, config: DictConfig, checkpoint: Path) -> Iterator[str]:
    old = OmegaConf.select(config, key, default=KeyError)
    if key.startswith("hydra."):
        yield f"{key} cannot change: a run resumes in its own directory"
    elif isinstance(old, DictConfig) or key == "experiment":
        keys = f"{'GROUP' if old is KeyError else key}.KEY=VALUE"
        reason = f"cannot be chosen again: checkpoint={checkpoint} resumes with its own config"
        yield f"{key}=… {reason}; change single keys, such as {keys}"
    elif old is KeyError:
        yield f"unknown key {key}{nearest_key(key, config)}"


def auto_run(config: DictConfig, folder: Path, *, named: bool, sized: bool) -> Path:
    """The run directory for ``checkpoint=auto``: of a run to resume, or else the new ``folder``.

    Runs beside a folder that the user has not ``named`` may be resumed. Unless the size of the
    vocabulary is given (``sized``), that of the run replaces it in the config.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    largest = None if sized else vocab_size(values)
    run, reason = find_run_to_resume(values, folder, named=named, largest=largest)
    print(f"checkpoint=auto: {reason}", file=sys.stderr)
    if run is not None and (own := vocab_size(read_config(run))):
        # It may be smaller than that of the call.
        config.tokenizer.vocab_size = own
    return run or folder
