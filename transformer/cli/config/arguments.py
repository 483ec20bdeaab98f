"""The ``KEY=VALUE`` arguments of a command, checked one by one; what an unknown key may mean."""

import os
from argparse import ArgumentError, ArgumentParser
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

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


ELSEWHERE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "max_lr"), ("optimizer.lr",)),
    **dict.fromkeys(("batch_size", "max_tokens"), ("data.batch_tokens", "batch_tokens")),
    **dict.fromkeys(("epochs", "max_epoch", "num_epochs"), ("trainer.max_epochs",)),
    **dict.fromkeys(("max_update", "train_steps", "steps", "updates"), ("trainer.max_steps",)),
    **dict.fromkeys(("update_freq", "accum_count"), ("trainer.accumulate_grad_batches",)),
    **dict.fromkeys(("clip_norm", "max_grad_norm"), ("trainer.gradient_clip_val",)),
    **dict.fromkeys(("gpus", "num_gpus", "devices"), ("trainer.devices", "device")),
    **dict.fromkeys(("gpu", "cuda", "device", "accelerator"), ("device", "trainer.accelerator")),
    **dict.fromkeys(("fp16", "bf16", "amp"), ("precision",)),
    **dict.fromkeys(("valid_steps", "eval_steps"), ("trainer.val_check_interval",)),
    **dict.fromkeys(("warmup_updates", "warmup_steps"), ("schedule.warmup",)),
    **dict.fromkeys(("beam", "num_beams"), ("decoding.beam_size",)),
    **dict.fromkeys(("lenpen", "len_penalty", "alpha"), ("decoding.length_penalty",)),
    **dict.fromkeys(("n_best", "num_return_sequences"), ("decoding.nbest",)),
    **dict.fromkeys(("layers", "enc_layers", "num_layers"), ("model.encoder_layers",)),
    "metrics": ("scores",),
    "loss.alpha": ("loss.consistency_weight",),
    "dec_layers": ("model.decoder_layers",),
    **dict.fromkeys(("heads", "attention_heads", "nhead"), ("model.num_heads",)),
    **dict.fromkeys(("hidden_size", "embed_dim", "dim"), ("model.d_model",)),
    **dict.fromkeys(("ffn_embed_dim", "intermediate_size"), ("model.ffn_dim",)),
    **dict.fromkeys(("source_lang", "src"), ("data.source",)),
    **dict.fromkeys(("target_lang", "tgt"), ("data.target",)),
    **dict.fromkeys(("trainpref", "train_src"), ("data.train",)),
    **dict.fromkeys(("validpref", "valid", "dev"), ("data.validation",)),
    **dict.fromkeys(("save_dir", "output_dir", "save_model"), ("hydra.run.dir",)),
    **dict.fromkeys(
        ("resume", "restore_file", "train_from", "resume_from_checkpoint", "model_path", "model"),
        ("checkpoint",),
    ),
}
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
    for own in Path(folder).glob("*/*.yaml") if folder else ():
        if (config_folder() / own.parent.name / own.name).exists():
            raise InputError(f"{own} has the name of a choice of conf/; give it another")
    return Path(folder).absolute() if folder else None


def take_config_folder(arguments: Sequence[str]) -> list[str]:
    """The arguments without ``--config-dir``, which is kept for `own_config_folder`."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config-dir", "-cd")
    with _argument_errors():
        found, rest = parser.parse_known_args(arguments)
    if not found.config_dir:
        raise InputError("--config-dir= names no folder; give one with GROUP/NAME.yaml")
    # Processes that this one starts compose, too.
    os.environ[CONFIG_DIR] = str(Path(found.config_dir).absolute())
    return rest


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
    folders = filter(None, [config_folder(), own_config_folder()])
    names = sorted({file.stem for one in folders for file in (one / group).glob("*.yaml")})
    return [name for name in names if (group, name) != ("data", BASE_OF_CORPORA)]


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
        advice += "" if verb == "train" else ", and only train takes flags of Hydra"
    elif override.startswith("~") and override != "~experiment":
        key = override[1:].partition("=")[0]
        advice = f"no key can be removed; write {key}=null, if it may be null"
    elif not equals and "checkpoint" in _verb_file(verb) and os.path.exists(override):
        advice = f"a run is given as checkpoint={override}"
    if advice or (not equals and override != "~experiment"):
        reason = f"{override!r} is not of the form KEY=VALUE"
        raise InputError("; ".join(filter(None, (reason, advice))))
    try:
        [parsed] = OverridesParser.create().parse_overrides([override])
    except HydraException as error:
        reason = " ".join(str(error).split()).partition(" See https://")[0]
        message = f"{override} is not KEY=VALUE as Hydra reads it ({reason}); {_QUOTES}"
        raise InputError(message) from error
    if parsed.is_sweep_override() and sweeps is not None:
        ways = [f"write '{key}=[{text}]' for a list", f"\"{key}='{text}'\" for a text"]
        ways = ["choose one"] if choices(key) else ways
        raise InputError(f"{key}={text}: {', '.join(filter(None, [sweeps, *ways]))}")
    return parsed


def check_overrides(verb: str, overrides: Sequence[str], *, sweep: bool = False) -> None:
    """Check the form of arguments, and the choices of groups; Hydra passes over some of these."""
    hint = "add --multirun to sweep over them" if verb == "train" else ""
    parsed = [parse_override(one, verb, sweeps=None if sweep else hint) for one in overrides]
    raise_objections(reason for override in parsed for reason in _objections(verb, override))


def _objections(verb: str, override: Override) -> Iterator[str]:
    """Objections to the choices of a group of a command; an optional one may have several."""
    group, known = override.key_or_group, choices(override.key_or_group)
    value: Any = override.value()
    defaults = (entry for entry in _verb_file(verb).get("defaults", []) if isinstance(entry, dict))
    groups = set(chain.from_iterable(defaults))
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
    parser.allow_abbrev = parser.exit_on_error = False
    # An --info without a value would take the KEY=VALUE after it.
    followed = pairwise([*arguments, "="])
    arguments = [
        "--info=all" if one in ("--info", "-i") and "=" in after else one for one, after in followed
    ]
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


def nearest_key(key: str, known: Collection[str]) -> str:
    """What the user may have meant, in parentheses: the same last part, a longer or similar key."""
    last = key.rpartition(".")[2].replace("-", "_").lower()
    same = [each for each in known if each.rpartition(".")[2] == last and each != key]
    same = [last] if last in same else same
    elsewhere = ELSEWHERE.get(key) or ELSEWHERE.get(last, ())
    same = same or [each for each in elsewhere if each in known][:1]
    same = same or [each for each in known if "." in key and each.startswith(f"{key}_")]
    if same:
        return f" (did you mean {' or '.join(same)}?)"
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
