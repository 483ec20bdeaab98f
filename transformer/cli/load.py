"""The translator that a call of a verb means: checkpoint, device and search."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from transformer.data.tokenizer import Tokenizer
from transformer.decoding.search import SearchConfig
from transformer.decoding.translator import Translator
from transformer.errors import InputError
from transformer.model.checkpoint import load_checkpoint
from transformer.training.typed import typed


def load_translator(
    config: DictConfig, arguments: Sequence[str]
) -> tuple[Translator, dict[str, Any]]:
    """The translator, and the config of the run that trained it.

    Raises:
        InputError: The checkpoint cannot be read, the device is not there, or the search wrong.
    """
    checkpoint = load_checkpoint(config.checkpoint)
    composed = OmegaConf.to_container(config.decoding)
    search = _search(arguments, composed, checkpoint.config["decoding"])  # type: ignore[arg-type]
    translator = Translator(
        checkpoint.model,
        Tokenizer.from_state(checkpoint.tokenizer),
        search,
        batch_tokens=config.batch_tokens,
        device=_device(config.device),
    )
    return translator, checkpoint.config


def _search(
    arguments: Sequence[str], composed: Mapping[str, Any], trained: Mapping[str, Any]
) -> SearchConfig:
    """``decoding=NAME`` takes the composed search, ``decoding.KEY=`` changes the run's own."""
    keys = [argument.partition("=")[0] for argument in arguments]
    if "decoding" in keys:
        return typed(SearchConfig, composed, "decoding")
    changed = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    values = {**trained, **{key: composed[key] for key in changed}}
    return typed(SearchConfig, values, "decoding")


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={name} cannot be used here: {reason}") from error
    return device
