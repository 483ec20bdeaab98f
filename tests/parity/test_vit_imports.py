"""The encoder of a run that begins with a ViT computes what that of transformers does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.lazy import hf
from transformer.__main__ import main
from transformer.data.batching.batch import pad_source
from transformer.decoding.translator import Translator

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": (12, 20),
    "patch_size": 4,
}


def vit_folder(
    folder: Path, head: bool, std: tuple[float, ...] = (0.5,) * 3, **changes: Any
) -> Any:
    """Write a folder of ViT, and return its encoder; its vectors are small at the first norm."""
    torch.manual_seed(1)
    kind = hf.ViTForImageClassification if head else hf.ViTModel
    model = kind(hf.ViTConfig(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(torch.randn_like(weight) * (0.02 if "embeddings" in name else 0.2))
    model.save_pretrained(folder)
    height, width = SIZES["image_size"]
    processor = hf.ViTImageProcessorPil(
        size={"height": height, "width": width}, image_mean=[0.4, 0.5, 0.6], image_std=list(std)
    )
    processor.save_pretrained(folder)
    return (model.vit if head else model), processor


@pytest.mark.parametrize("head", [False, True])
def test_hidden_states_are_those_of_transformers(tmp_path: Path, head: bool) -> None:
    changes = {"qkv_bias": False, "hidden_act": "gelu_new"} if head else {}
    model, processor = vit_folder(tmp_path / "there", head, (0.5, 0.25, 0.3), **changes)
    run = tmp_path / "run"
    assert main(["import", f"checkpoint={tmp_path / 'there'}", f"output={run}", "seed=3"]) == 0
    translator = Translator.load(run)
    # Bytes, and the four symbols: no sentinels of ByT5, which would be written.
    assert translator.tokenizer.target_vocab_size == 260
    encoded = translator.tokenizer.encode_target(["Hündin <extra_id_1>"])
    assert translator.tokenizer.decode_target(encoded) == ["Hündin <extra_id_1>"]
    files = []
    random = np.random.default_rng(0)
    for number in range(10):
        height, width = random.integers(8, 40, 2)
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        files.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(pixels).save(files[-1])
    pictures = [Image.open(file) for file in files]
    with torch.no_grad():
        theirs = model(processor(pictures, return_tensors="pt").pixel_values).last_hidden_state
        source = pad_source(translator.tokenizer.encode_source(files))
        ours = translator.model.encode(source).hidden
    assert ours.shape == (10, 16, 16)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    # The decoder is new, and a function of the seed.
    again = tmp_path / "again"
    assert main(["import", f"checkpoint={tmp_path / 'there'}", f"output={again}", "seed=3"]) == 0
    weights = Translator.load(again).model.state_dict()
    assert all(torch.equal(w, weights[n]) for n, w in translator.model.state_dict().items())
