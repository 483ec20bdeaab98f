"""The ``KEY=VALUE`` arguments of a command: checks of each, choices of groups, ``--help``."""

import os
from argparse import ArgumentError, ArgumentParser
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from transformer.common.errors import InputError, did_you_mean, raise_objections
from transformer.common.files import CONFIG_DIR, PACKAGE
from transformer.common.schema import override_key

BASE_OF_CORPORA = "base"
"""The file of conf/data that all corpora build on; not itself a choice."""

_QUOTES = "close what is open; quote what has other signs or letters than a-z: \"KEY=['a ü',b]\""


_OTHER_NAMES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("learning_rate", "max_lr"), ("optimizer.lr",)),
    (("batch_size", "max_tokens"), ("data.batch_tokens", "batch_tokens")),
    (("epochs", "max_epoch", "num_epochs"), ("trainer.max_epochs",)),
    (("max_update", "train_steps", "steps", "updates"), ("trainer.max_steps",)),
    (("update_freq", "accum_count"), ("trainer.accumulate_grad_batches",)),
    (("clip_norm", "max_grad_norm"), ("trainer.gradient_clip_val",)),
    (("gpus", "num_gpus", "devices"), ("trainer.devices", "device")),
    (("gpu", "cuda", "device", "accelerator"), ("device", "trainer.accelerator")),
    (("fp16", "bf16", "amp"), ("precision",)),
    (("valid_steps", "eval_steps"), ("trainer.val_check_interval",)),
    (("warmup_updates", "warmup_steps"), ("schedule.warmup",)),
    (("beam", "num_beams"), ("decoding.beam_size",)),
    (("lenpen", "len_penalty", "alpha"), ("decoding.length_penalty",)),
    (("n_best", "num_return_sequences"), ("decoding.nbest",)),
    (("layers", "enc_layers", "num_layers"), ("model.encoder_layers",)),
    (("reference",), ("target",)),
    (("loss.alpha",), ("loss.consistency_weight",)),
    (("dec_layers",), ("model.decoder_layers",)),
    (("heads", "attention_heads", "nhead"), ("model.num_heads",)),
    (("hidden_size", "embed_dim", "dim"), ("model.d_model",)),
    (("ffn_embed_dim", "intermediate_size"), ("model.ffn_dim",)),
    (("source_lang", "src"), ("data.source",)),
    (("target_lang", "tgt"), ("data.target",)),
    (("trainpref", "train_src"), ("data.train",)),
    (("validpref", "valid", "dev"), ("data.validation",)),
    (("save_dir", "output_dir", "save_model"), ("hydra.run.dir",)),
    (
        ("resume", "restore_file", "train_from", "resume_from_checkpoint", "model_path", "model"),
        ("checkpoint",),
    ),
)

ELSEWHERE = {name: keys for names, keys in _OTHER_NAMES for name in names}
"""Names of keys in other toolkits, by their last part; the first of our keys that exists counts."""


def config_folder() -> Path:
    """``conf/`` as a wheel carries it, or as the checkout has it."""
    inside = PACKAGE / "conf"
    return inside if inside.is_dir() else PACKAGE.parent / "conf"


def own_config_folder() -> Path | None:
    """The folder of the user's own choices of groups (``--config-dir``), if there is one."""
    folder = os.environ.get(CONFIG_DIR)
    if folder and not Path(folder).is_dir():
        raise InputError(f"--config-dir={folder} is no folder; name one with GROUP/NAME.yaml")
    if not folder:
        return None
    for file in Path(folder).glob("*/*.yaml"):
        if (config_folder() / file.parent.name / file.name).exists():
            raise InputError(f"{file} has the name of a choice of conf/; give it another")
    return Path(folder).absolute()


def take_config_folder(arguments: Sequence[str]) -> list[str]:
    """The arguments without ``--config-dir``, which is kept for `own_config_folder`."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config-dir", "-cd")
    with _argument_errors():
        parsed, remaining = parser.parse_known_args(arguments)
    if not parsed.config_dir:
        raise InputError("--config-dir= names no folder; give one with GROUP/NAME.yaml")
    # Processes that this one starts compose, too.
    os.environ[CONFIG_DIR] = str(Path(parsed.config_dir).absolute())
    return remaining


@contextmanager
def _argument_errors() -> Iterator[None]:
    try:
        yield
    except ArgumentError as error:
        raise InputError(f"{error.argument_name}: {error.message}") from error


def search_path() -> list[str]:
    """The argument by which Hydra looks into the user's own folder, after conf/."""
    folder = str(own_config_folder() or "").replace("'", "\\'")
    return [f"hydra.searchpath=['file://{folder}']"] if folder else []


def choices(group: str) -> list[str]:
    """What a group of conf/, and of the user's own folder, offers; nothing if there is none."""
    folders = [config_folder()]
    own_folder = own_config_folder()
    if own_folder is not None:
        folders.append(own_folder)
    names = {file.stem for folder in folders for file in (folder / group).glob("*.yaml")}
    if group == "data":
        names.discard(BASE_OF_CORPORA)
    return sorted(names)


def without_plus(argument: str) -> str:
    """``+KEY=VALUE`` and ``++KEY=VALUE`` as ``KEY=VALUE``: every key is there, Hydra's aside."""
    bare = argument.lstrip("+")
    if "=" not in bare or bare == argument:
        return argument
    # ++ sets a key of Hydra that is there, too.
    return f"++{bare}" if bare.startswith("hydra") else bare


def parse_override(override: str, verb: str = "train", *, sweeps: str | None = "") -> Override:
    """Parse ``KEY=VALUE``; ``sweeps`` is the advice for several values, and None allows them."""
    key, equals, text = override.partition("=")
    advice = ""
    if override.startswith("-"):
        advice = "keys have no dashes before them"
        if verb != "train":
            advice += ", and only train takes flags of Hydra"
    elif override.startswith("~") and override != "~experiment":
        key = override[1:].partition("=")[0]
        advice = f"no key can be removed; write {key}=null, if it may be null"
    elif not equals and "checkpoint" in _verb_file(verb) and os.path.exists(override):
        advice = f"a run is given as checkpoint={override}"
    if advice or (not equals and override != "~experiment"):
        reason = f"{override!r} is not of the form KEY=VALUE"
        raise InputError(f"{reason}; {advice}" if advice else reason)
    try:
        [parsed] = OverridesParser.create().parse_overrides([override])
    except HydraException as error:
        reason = " ".join(str(error).split()).partition(" See https://")[0]
        message = f"{override} is not KEY=VALUE as Hydra reads it ({reason}); {_QUOTES}"
        raise InputError(message) from error
    if parsed.is_sweep_override() and sweeps is not None:
        ways = [sweeps] if sweeps else []
        if choices(key):
            ways.append("choose one")
        else:
            ways.append(f"write '{key}=[{text}]' for a list")
            ways.append(f"\"{key}='{text}'\" for a text")
        raise InputError(f"{key}={text}: {', '.join(ways)}")
    return parsed


def check_overrides(verb: str, overrides: Sequence[str], *, sweep: bool = False) -> None:
    """Check the form of arguments, and the choices of groups; Hydra passes over some of these."""
    hint = "add --multirun to sweep over them" if verb == "train" else ""
    advice = None if sweep else hint
    parsed = [parse_override(override, verb, sweeps=advice) for override in overrides]
    raise_objections(reason for override in parsed for reason in _objections(verb, override))


def _objections(verb: str, override: Override) -> Iterator[str]:
    """Objections to the choices of a group of a command; an optional one may have several."""
    group = override.key_or_group
    known = choices(group)
    value: Any = override.value()
    groups = set(_default_choices(verb))
    optional = f"optional {group}" in groups
    if not (optional or group in groups) or override.is_delete():
        return
    if isinstance(value, list) and not optional:
        yield f"{group}=[{','.join(map(str, value))}] is a list; choose one, {group}=NAME"
        return
    if override.is_sweep_override():
        value = value.list if isinstance(value, ChoiceSweep) else []
    for name in value if isinstance(value, list) else [value]:
        spelled = "null" if name is None else getattr(name, "text", str(name))
        if spelled not in known:
            meant = did_you_mean(spelled, known)
            yield f"{group}={spelled} is unknown{meant}; choose {' or '.join(known)}"


def flags_and_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags of Hydra with their values, and the other arguments, in any order."""
    parser = get_args_parser()
    parser.allow_abbrev = False
    parser.exit_on_error = False
    arguments = list(arguments)
    for index, argument in enumerate(arguments):
        # An --info without a value would take the KEY=VALUE after it.
        is_last = index + 1 == len(arguments)
        if argument in ("--info", "-i") and (is_last or "=" in arguments[index + 1]):
            arguments[index] = "--info=all"
    with _argument_errors():
        parsed, unknown = parser.parse_known_intermixed_args(arguments)
    for flag in unknown:
        parse_override(flag)
    overrides = parsed.overrides or []
    return [argument for argument in arguments if argument not in overrides], overrides


@cache
def _verb_file(verb: str) -> dict[str, Any]:
    file: Any = OmegaConf.to_container(OmegaConf.load(config_folder() / f"{verb}.yaml"))
    return dict(file)


def default_choice(verb: str, group: str) -> str:
    """What a command takes of a group where the call says nothing; "" if it takes nothing."""
    return _default_choices(verb).get(group, "")


def _default_choices(verb: str) -> dict[str, Any]:
    """The choice of each group in the defaults of a command; a group may be ``optional NAME``."""
    entries = (entry for entry in _verb_file(verb).get("defaults", []) if isinstance(entry, dict))
    return {group: choice for entry in entries for group, choice in entry.items()}


def nearest_key(key: str, known: Collection[str]) -> str:
    """What the user may have meant, in parentheses: the same last part, a longer or similar key."""
    group, _, name = key.rpartition(".")
    for choice in choices(group) if group else []:
        file = config_folder() / group / f"{choice}.yaml"
        if file.is_file() and name in (yaml.safe_load(_text(file)) or {}):
            return f" (it is a key of {group}={choice})"
    last = key.rpartition(".")[2].replace("-", "_").lower()
    candidates = [name for name in known if name.rpartition(".")[2] == last and name != key]
    if last in candidates:
        candidates = [last]
    if not candidates:
        elsewhere = ELSEWHERE.get(key) or ELSEWHERE.get(last, ())
        candidates = [name for name in elsewhere if name in known][:1]
    if not candidates and "." in key:
        candidates = [name for name in known if name.startswith(f"{key}_")]
    if candidates:
        return f" (did you mean {' or '.join(candidates)}?)"
    return did_you_mean(key, known, cutoff=0.5)


def known_keys(config: DictConfig, prefix: str = "") -> list[str]:
    """Every key of a config, dotted."""
    keys = []
    for name in map(str, config):
        keys.append(f"{prefix}{name}")
        value = config._get_node(name)
        if isinstance(value, DictConfig):
            keys += known_keys(value, f"{prefix}{name}.")
    return keys


def names_vocabulary_size(arguments: Sequence[str]) -> bool:
    """Whether the size is in the command, and not only in ``conf/``."""
    return "tokenizer.vocab_size" in map(override_key, arguments)


def help_text(verb: str) -> str:
    """The keys of a command, with their defaults and comments."""
    folder = config_folder()
    root = folder / f"{verb}.yaml"
    files = list(included_files(root))
    if verb == "recipe":
        files += [(file, root) for file in sorted((folder / verb).glob("*.yaml"))]
    parts = [_text(root)]
    parts += [f"\n{_title(file, user, folder)}\n{_text(file)}" for file, user in files]
    return "\n".join(parts)


def _title(file: Path, user: Path, folder: Path) -> str:
    """The choice that a file is and the other choices, or the choice that builds on it."""
    group = file.parent.relative_to(folder).as_posix()
    if user.parent == file.parent:
        return f"# ==== {group}: {file.stem}, which {group}={user.stem} builds on"
    alternatives = [name for name in choices(group) if name != file.stem]
    return f"# ==== {group}={file.stem}; or {', '.join(alternatives)}"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip("\n")


def included_files(file: Path) -> Iterator[tuple[Path, Path]]:
    """The files that a config includes by default, each after those it includes, and its user."""
    config: Any = yaml.safe_load(_text(file))
    for entry in config.get("defaults", ()):
        pairs = [entry.rpartition("/")[::2]] if isinstance(entry, str) else entry.items()
        for group, choice in pairs:
            chosen = file.parent / group / f"{choice}.yaml"
            # A keyword may stand before the group: optional or override.
            if " " not in group and chosen.is_file():
                yield from included_files(chosen)
                yield chosen, file
