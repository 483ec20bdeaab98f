"""What Hydra refuses, said in one line: which argument is wrong, and what was probably meant.

It does not know what the keys mean.
"""

import re
from collections.abc import Sequence

from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf

from transformer.common.errors import did_you_mean

_UNKNOWN_CHOICE = re.compile(
    r"Could not find '(?P<group>[^']+)/(?P<name>[^']+)' "
    r"Available options in '(?P=group)': (?P<choices>.*?)(?: Config search path:|$)"
)
_QUOTES = "close what is open, and quote a text that has brackets or quotes: \"KEY='VALUE'\""
_UNQUOTED_LIST = re.compile(r"Ambiguous value for argument '(?P<key>[^'=]+)=(?P<value>.*?)' 1\. ")


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
        ("resume", "restore_file", "train_from", "resume_from_checkpoint", "model_path"),
        ("checkpoint",),
    ),
}
"""What other toolkits call a key, by the last part of the name; of the keys, the first that there
is."""


NO_CHOICE = "data/base"
"""What all corpora build on; not itself a choice."""


def explained(error: Exception, overrides: Sequence[str], config: DictConfig) -> str:
    """What is wrong with the arguments of a call.

    Args:
        error: That Hydra has raised.
        overrides: The user's arguments.
        config: That they are for.
    """
    message = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        reason = message.partition(" See https://")[0]
        return f"{error.override} is not KEY=VALUE as Hydra reads it ({reason}); {_QUOTES}"
    if found := _UNKNOWN_CHOICE.search(message):
        return unknown_choice(found["group"], found["name"], found["choices"].split())
    if found := _UNQUOTED_LIST.search(message):
        return _several(found["key"], found["value"], config)
    key = unknown_key(error, overrides, config)
    return message if key is None else f"unknown key {key}{nearest_key(key, config)}"


def unknown_key(error: Exception, overrides: Sequence[str], config: DictConfig) -> str | None:
    """The key that an error is about, if that is unknown; arguments as in ``explained``."""
    message = " ".join(str(error).split())
    for key in map(override_key, overrides):
        if f"'{key}'" in message or f"Key '{key.split('.')[-1]}'" in message:
            return None if key in known_keys(config) else key
    return None


def override_key(override: str) -> str:
    """What an argument gives a value to."""
    return re.split(r"[=@]", override.lstrip("+~"))[0]


def _several(key: str, value: str, config: DictConfig) -> str:
    """What values with commas between them may have been meant for."""
    sweeps = "add --multirun to sweep over them" if "trainer" in config else ""
    if isinstance(OmegaConf.select(config, key), DictConfig):
        return f"{key}={value} are several; {sweeps or 'choose one'}"
    ways = [sweeps, f"write '{key}=[{value}]' for a list", f"\"{key}='{value}'\" for a text"]
    return f"{key}={value}: {', '.join(filter(None, ways))}"


def unknown_choice(group: str, name: str, known: Sequence[str]) -> str:
    """That a group has no choice of this name, and which it has."""
    known = [choice for choice in known if f"{group}/{choice}" != NO_CHOICE]
    return f"{group}={name} is unknown{did_you_mean(name, known)}; choose {' or '.join(known)}"


def nearest_key(key: str, config: DictConfig) -> str:
    """What the user may have meant, in parentheses; empty when nothing is near.

    Keys of the same last part go first, then what other toolkits call so, then longer names, then
    what is alike.
    """
    known = known_keys(config)
    # Hydra's own key, which only ``train`` has.
    known += ["hydra.run.dir"] if "trainer" in config else []
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
