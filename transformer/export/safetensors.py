"""A translator as a folder that others can read: weights, plain settings, SentencePiece models.

``model.safetensors`` holds each weight once under our name for it; ``config.json`` what a
checkpoint says besides, ``source.model`` and, where it is another, ``target.model`` the
vocabularies. It does not know runs: the folder is enough to translate with.
"""

from pathlib import Path
from typing import Any

import torch

from transformer.data.tokenizer import Tokenizer
from transformer.errors import InputError
from transformer.export.settings import read_settings, unreadable, write_settings
from transformer.model.build import build_transformer
from transformer.model.checkpoint import Checkpoint
from transformer.model.heads import heads_off
from transformer.model.transformer import Transformer

WEIGHTS = "model.safetensors"
SETTINGS = "config.json"


def is_exported(path: Path) -> bool:
    """Whether a path is such a folder, and may be looked at."""
    try:
        return (path / WEIGHTS).is_file()
    except OSError:
        return False


def write_safetensors(
    model: Transformer, tokenizer: Tokenizer, config: dict[str, Any], folder: Path
) -> None:
    """Write the files into an existing folder.

    Args:
        model: Any float type.
        tokenizer: Its own.
        config: The resolved configuration of its run.
        folder: Where to.

    Raises:
        InputError: Heads are switched off, which weights do not say.
    """
    from safetensors.torch import save_model

    if off := heads_off(model):
        raise InputError(
            f"format=safetensors keeps all heads, {off[0]} too; leave out heads_off here, and give "
            "it where the folder is used"
        )
    write_settings(model.config, tokenizer, config, folder / SETTINGS)
    save_model(model, str(folder / WEIGHTS), metadata={"format": "pt"})
    # It comes for its owner alone; who may read it is for the umask to say.
    (folder / WEIGHTS).chmod((folder / SETTINGS).stat().st_mode)


def read_safetensors(folder: Path) -> Checkpoint:
    """Read what ``write_safetensors`` wrote.

    Raises:
        InputError: A file is missing, damaged, from a newer version, or names a program.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    settings = read_settings(folder / SETTINGS)
    try:
        model = build_transformer(settings.model)
        load_model(model, folder / WEIGHTS)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise unreadable(folder, error) from error
    return Checkpoint(model.eval(), settings.tokenizer, settings.config, folder)


def verify_safetensors(model: Transformer, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Read the folder again, and compare bit by bit; returns what was compared.

    Raises:
        RuntimeError: It is not the same.
    """
    found = read_safetensors(folder)
    weights = found.model.state_dict()
    for name, weight in model.state_dict().items():
        if not torch.equal(weight.cpu(), weights[name]):
            raise RuntimeError(f"{folder / WEIGHTS}: {name} is not what was written")
    if Tokenizer.from_state(found.tokenizer).fingerprint != tokenizer.fingerprint:
        raise RuntimeError(f"{folder}: the vocabularies are not what was written")
    return {"equal_weights": len(weights), "bytes": (folder / WEIGHTS).stat().st_size}
