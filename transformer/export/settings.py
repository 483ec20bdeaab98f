"""What an exported folder holds beside the weights: plain settings, SentencePiece models.

``source.model`` and, where it is another, ``target.model`` are the vocabularies. It does not know
how the weights are stored.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transformer.data.tokenizer import Tokenizer
from transformer.errors import InputError
from transformer.model.checkpoint import portable_part, refuse_program
from transformer.model.config import ModelConfig
from transformer.model.formats import FORMAT, upgraded

SIDES = ("source", "target")


class Settings(NamedTuple):
    """A checkpoint without its weights; ``tokenizer`` is for ``Tokenizer.from_state``."""

    model: ModelConfig
    tokenizer: dict[str, Any]
    config: dict[str, Any]


def write_settings(
    model: ModelConfig, tokenizer: Tokenizer, config: dict[str, Any], file: Path
) -> None:
    """Write the settings into a new file, and the vocabularies beside it.

    Args:
        model: Of the model that is exported.
        tokenizer: Its own.
        config: The resolved configuration of its run.
        file: A JSON file.
    """
    state = tokenizer.to_state()
    for side in SIDES:
        if state[side] is not None:
            (file.parent / f"{side}.model").write_bytes(bytes(state[side].numpy()))
    values = portable_part(model, state["config"], config) | {"tags": state["tags"]}
    text = json.dumps(values, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")


def read_settings(file: Path) -> Settings:
    """Read what ``write_settings`` wrote.

    Raises:
        InputError: A file is missing, damaged, from a newer version, or names a program.
    """
    folder = file.parent
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if values["format"] > FORMAT:
            raise InputError(
                f"{folder} has format {values['format']}, this version reads up to {FORMAT}; "
                "install a newer version"
            )
        values = upgraded(values)
        refuse_program(values["config"], folder)
        tokenizer = {"config": values["tokenizer"], "tags": values.get("tags")}
        tokenizer |= {side: _vocabulary(folder, side) for side in SIDES}
        model = ModelConfig(**values["model"])
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise unreadable(folder, error) from error
    try:
        Tokenizer.from_state(tokenizer)
    except InputError as error:
        raise unreadable(folder, error) from error
    return Settings(model, tokenizer, values["config"])


def unreadable(folder: Path, error: Exception) -> InputError:
    """The user's error of a folder that is not as it was exported."""
    return InputError(f"{folder} cannot be read as an export: {' '.join(str(error).split())}")


def _vocabulary(folder: Path, side: str) -> torch.Tensor | None:
    """A joint vocabulary has no target's own."""
    file = folder / f"{side}.model"
    if side == "target" and not file.exists():
        return None
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8)
