"""The fingerprint of a model: an export of other weights is refused."""

import hashlib
import json
from pathlib import Path

import torch

from transformer.common.errors import InputError
from transformer.data.tokenization.tags import UNTAGGED
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.head_masks import heads_off
from transformer.model.layers.quantization import Int8Linear
from transformer.model.transformer import Transformer
from transformer.settings.model import LEARNING_KEYS

FILE = "made_from.json"


def compute_fingerprint(model: Transformer, tokenizer: Tokenizer) -> str:
    """A hash of weights, switched-off heads and vocabularies, which determine the output."""
    # The tags before the sources belong to the call, not to the model.
    digest = hashlib.sha256(tokenizer.tagged(UNTAGGED).fingerprint.encode())
    config = {
        key: value for key, value in model.config.to_dict().items() if key not in LEARNING_KEYS
    }
    digest.update(json.dumps(config, sort_keys=True).encode())
    digest.update(" ".join(map(str, heads_off(model))).encode())
    for name, weight in sorted(_weights(model).items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _weights(model: Transformer) -> dict[str, torch.Tensor]:
    """Every weight by its name, also in int8."""
    weights = dict(model.state_dict())
    for name, module in model.named_modules():
        if isinstance(module, Int8Linear):
            weight, bias = module.unpacked()
            weights[f"{name}.weight"] = weight
            if bias is not None:
                weights[f"{name}.bias"] = bias
    return weights


def write_fingerprint(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the fingerprint into the folder of an export."""
    text = json.dumps({"model": compute_fingerprint(model, tokenizer)})
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def check_fingerprint(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """Raise InputError unless an export was made from the present state of this model."""
    try:
        known = json.loads((folder / FILE).read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known != compute_fingerprint(model, tokenizer):
        raise InputError(
            f"{folder} was not exported from this checkpoint as it is now (weights, vocabulary and "
            "heads_off); remove it and export again"
        )
