"""Going on with a run: its own config, and the keys that the user changes.

Of what else the checkpoint holds it knows whether training can go on from it.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import check_no_flags
from transformer.cli.config.hydra_errors import explained, nearest_key
from transformer.cli.train.vocabulary import as_asked, names_size, vocab_size_key
from transformer.common.errors import InputError, errors_name, raise_objections
from transformer.common.files import given_path
from transformer.runs.config_file import CONFIG, read_config
from transformer.runs.resume import RunFolder, find_run_to_resume
from transformer.runs.resume_compatibility import fixed_key_that_differs
from transformer.training.checkpointing.run_directory import has_checkpoint, is_finished, is_locked

TAKEN_FROM = {
    "precision": "trainer.precision",
    "seed": "data.seed",
    "trainer.max_steps": "schedule.total",
}
"""Where conf/ hands a value on; the config of a checkpoint is resolved and no longer knows. What
had another value already was set by the user and stays."""

_EXAMPLES = {"decoding": "decoding.algorithm=greedy decoding.beam_size=1"}
"""Of keys that change together, as those who choose a group mean."""

TRUST = "trust"
"""``trust=true``: text that the checkpoint names outside of the working folder may be read."""

AUTO = "auto"
"""``checkpoint=auto``: the call finds out itself what to go on with."""


def named_checkpoint(arguments: Sequence[str]) -> Path | None:
    """The path in ``checkpoint=PATH``, if there is one."""
    for argument in reversed(arguments):
        key, _, value = argument.partition("=")
        if key == "checkpoint" and value not in ("", "null", AUTO):
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            return given_path(value[1:-1] if quoted else value)
    return None


def is_trusted(arguments: Sequence[str]) -> bool:
    """Whether the command says ``trust=true``.

    Raises:
        InputError: It says something else of it.
    """
    said = [one.partition("=")[2] for one in arguments if one.partition("=")[0] == TRUST]
    if any(value not in ("true", "false") for value in said):
        raise InputError(f"{TRUST}={said[-1]} must be true or false")
    return said[-1:] == ["true"]


def resumed_config(checkpoint: Path, arguments: Sequence[str]) -> DictConfig:
    """The config that the checkpoint carries, with the user's ``KEY=VALUE`` on top.

    Raises:
        InputError: There is no checkpoint, training cannot go on from it, or an argument does not
            name a key of its config, or says what only a new run can begin with.
    """
    from transformer.data.corpora.trust import require_trust
    from transformer.model.checkpoint.checkpoint import PORTABLE
    from transformer.training.checkpointing.saved_state import find_resumable
    from transformer.training.config import run_config

    file, payload = find_resumable(checkpoint)
    with errors_name(file):
        run_config(payload[PORTABLE]["config"])
    before = OmegaConf.create(payload[PORTABLE]["config"])
    config = before.copy()
    given: dict[str, object] = {"checkpoint": str(checkpoint)}
    # A path may hold signs that Hydra reads as more than a text.
    others = ("checkpoint", TRUST)
    changes = [one for one in arguments if one.partition("=")[0] not in others]
    given |= {each.key_or_group: each.value() for each in _parsed(changes, config)}
    raise_objections(reason for key in given for reason in _objections(key, config, checkpoint))
    require_trust(payload[PORTABLE]["config"]["data"], is_trusted(arguments), file, given)
    for key, value in given.items():
        OmegaConf.update(config, key, value)
        index = TAKEN_FROM.get(key)
        if index is None or index in given:
            continue
        if OmegaConf.select(before, index) == OmegaConf.select(before, key):
            OmegaConf.update(config, index, value)
    if fixed := fixed_key_that_differs(before, config):
        raise InputError(f"{fixed} cannot change: a run goes on with what it began with")
    return config


def chosen_run(config: DictConfig, folder: Path, hydra: HydraConf) -> Path:
    """What ``checkpoint=auto`` means: the run directory to go on with, or else the new one.

    Args:
        config: Of the call; it takes the size of the vocabulary over from the run.
        folder: The run directory that Hydra has made, or found.
        hydra: Its own config, which tells whether the user has named the directory.

    Raises:
        InputError: The directory that the user has named holds another run.
    """
    sweeps = hydra.mode == RunMode.MULTIRUN
    key = "hydra.sweep.dir=" if sweeps else "hydra.run.dir="
    named = any(override.startswith(key) for override in hydra.overrides.hydra)
    beside = folder.parent.parent.glob("*/*") if sweeps else folder.parent.iterdir()
    others = [] if named else _readable(beside)
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    given = _looked_at(folder) if named else None
    size = None if names_size(hydra.overrides.task) else vocab_size_key(values)
    if size is not None:
        others = [as_asked(run, size) for run in others]
        given = as_asked(given, size) if given else None
    run, why = find_run_to_resume({str(k): v for k, v in values.items()}, given, others)
    print(f"checkpoint=auto: {why}", file=sys.stderr)
    if run is not None and (own := vocab_size_key(read_config(run))):
        # Its vocabulary stays, which may be smaller than asked for.
        config.tokenizer.vocab_size = own
    if run is None or run == folder:
        return folder
    if not any(folder.iterdir()):
        folder.rmdir()
    return run


def _readable(folders: Iterable[Path]) -> list[RunFolder]:
    """What lies beside a run; folders of others, which this user may not open, are none."""
    looked_at = []
    for folder in folders:
        with suppress(OSError):
            if folder.is_dir():
                looked_at.append(_looked_at(folder))
    return looked_at


def _looked_at(folder: Path) -> RunFolder:
    last = folder / "checkpoints" / "last.ckpt"
    values, goes_on = read_config(folder), has_checkpoint(folder)
    if goes_on and values is None:
        print(f"checkpoint=auto: {folder / CONFIG} is missing or damaged", file=sys.stderr)
    return RunFolder(
        path=folder,
        config=values,
        has_checkpoint=goes_on,
        finished=is_finished(folder),
        locked=is_locked(folder),
        changed=last.stat().st_mtime if last.is_file() else 0.0,
    )


def _objections(key: str, config: DictConfig, checkpoint: Path) -> Iterator[str]:
    """What cannot be given to a run that goes on: an unknown key, a group, one of Hydra."""
    old = OmegaConf.select(config, key, default=KeyError)
    if key.startswith("hydra."):
        yield f"{key} cannot change: a run goes on in its own directory"
    elif old is KeyError:
        yield f"unknown key {key}{nearest_key(key, config)}"
    elif isinstance(old, DictConfig):
        yield (
            f"{key}=… cannot be chosen anew: checkpoint={checkpoint} goes on with its own "
            f"config; change single keys, such as {_EXAMPLES.get(key, f'{key}.KEY=VALUE')}"
        )


def _parsed(arguments: Sequence[str], config: DictConfig) -> list[Override]:
    check_no_flags(arguments)
    try:
        overrides = OverridesParser.create().parse_overrides(list(arguments))
    except HydraException as error:
        raise InputError(explained(error, arguments, config)) from error
    for override in overrides:
        if override.is_delete() or override.is_sweep_override():
            raise InputError(f"{override.input_line} does not set a key to a value")
    return overrides
