"""Models of the presets and batches for them, without Hydra: not every machine with a GPU has it.

It knows neither updates nor searches.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from benchmarks.gpu.cost import Size
from benchmarks.gpu.measure import Bench
from transformer.common.schema import typed
from transformer.data.batching.batch import Batch, collate
from transformer.model.build import build_transformer
from transformer.model.transformer import Transformer
from transformer.settings.model import ModelConfig

CONF = Path(__file__).resolve().parents[2] / "conf"
TINY = {
    "d_model": 32,
    "num_heads": 2,
    "ffn_dim": 64,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.1,  # so that base and big are compiled once
    "sdpa_backend": "any",  # a CPU has not all of them
}
"""Of the models of a rehearsal, whatever a row says."""
LONGEST = (10, 60)
"""Subwords of the longest source of a batch; the others are up to a tenth shorter."""


def preset(group: str, name: str) -> dict[str, Any]:
    """The plain values of ``conf/GROUP/NAME.yaml``, which may extend other files of the group."""
    values: dict[str, Any] = yaml.safe_load((CONF / group / f"{name}.yaml").read_text("utf-8"))
    merged: dict[str, Any] = {}
    for base in values.pop("defaults", ["_self_"]):
        merged |= values if base == "_self_" else preset(group, base)
    return merged


def model_config(bench: Bench, name: str, **changes: Any) -> ModelConfig:
    """That of a preset; tiny in a rehearsal."""
    tiny = TINY if bench.small > 1 else {}
    values = preset("model", name) | changes | tiny
    return typed(ModelConfig, values, "model").sized(bench.vocabulary, bench.vocabulary)


def built(bench: Bench, name: str, **changes: Any) -> Transformer:
    """A preset with random weights, on the device."""
    torch.manual_seed(1)
    with torch.device(bench.device):
        return build_transformer(model_config(bench, name, **changes)).to(bench.device)


def size_of(config: ModelConfig) -> Size:
    """Its size on paper."""
    return Size.of(config.to_dict(), config.target_vocab_size)


def made_batches(bench: Bench, tokens: int, count: int) -> list[Batch]:
    """Random sentence pairs in memory of the host; no side has more tokens, padding included."""
    random = np.random.default_rng(1)

    def side(rows: int, longest: int) -> list[np.ndarray]:
        lengths = random.integers(longest * 9 // 10, longest, rows, endpoint=True)
        return [random.integers(4, bench.vocabulary, length) for length in lengths]

    made = []
    for longest in random.integers(*LONGEST, count, endpoint=True).tolist():
        rows = max(1, tokens // (longest + 1))
        shorter = int(random.integers(longest * 8 // 10, longest, endpoint=True))
        made.append(collate(side(rows, longest), side(rows, shorter)))
    return made
