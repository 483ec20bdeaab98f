"""Run directories for tests: random weights, a validation set, no test set."""

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.model.models import portable, tiny_transformer
from transformer.checkpoint.checkpoint import PORTABLE, write_payload
from transformer.cli.config import compose_config


@cache
def _config() -> DictConfig:
    return compose_config("train", ["data=files"])


def payload(seed: int, validation: list[str], **more: Any) -> dict[str, Any]:
    """A checkpoint with weights of that seed."""
    tokenizer = tiny_tokenizer()
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
    )
    generator = torch.Generator().manual_seed(seed)
    state = {
        f"model.{name}": torch.randn(tensor.shape, generator=generator) * 0.3
        for name, tensor in model.state_dict().items()
    }
    config = _config()
    run = {
        "task": "translation",
        "decoding": asdict(search_config(beam_size=2, max_length_ratio=1.0, max_length_offset=5)),
        "loss": {**config.loss},
        "metrics": OmegaConf.to_container(config.metrics),
        # There is no test set to read.
        "data": {
            **OmegaConf.to_container(config.data),  # type: ignore[dict-item]
            **{"source": "en", "target": "de", "train": ["gone", "gone"]},
            **{"validation": validation, "test": ["gone", "gone"]},
        },
    }
    part = portable(model.config, tokenizer.to_state(), run)
    return {
        "state_dict": state,
        "optimizer_states": [{"state": {}, "seed": seed}],
        PORTABLE: part,
        **more,
    }


def write_run(folder: Path, *, ema: bool = False, steps: int = 3) -> Path:
    """A run directory with best.ckpt, last.ckpt and so many newest checkpoints."""
    validation = []
    for side, lines in enumerate(zip(*PAIRS, strict=True)):
        file = folder / f"validation.{('en', 'de')[side]}"
        file.write_text("".join(line + "\n" for line in lines))
        validation.append(str(file))
    more = {"current_model_state": payload(9, validation)["state_dict"]} if ema else {}
    checkpoints = folder / "run" / "checkpoints"
    write_payload(payload(1, validation, **more), checkpoints / "best.ckpt")
    write_payload(payload(2, validation, **more), checkpoints / "last.ckpt")
    for step in range(steps):
        write_payload(payload(step + 3, validation), checkpoints / f"step-{step:08d}.ckpt")
    return folder / "run"
