"""A folder of safetensors is the whole translator, bit by bit."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from tests.helpers.model.models import run_of, tiny_transformer
from transformer.checkpoint.exported import read_safetensors
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.safetensors import verify_safetensors, write_safetensors
from transformer.model.head_masks import HeadName, switch_off
from transformer.model.layers.quantization import Int8Linear, in_precision
from transformer.model.transformer import Transformer
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import TokenizerConfig


def config_of(model: Transformer) -> RunConfig:
    """The settings of a run whose model it is."""
    return run_of(model.config, decoding={"beam_size": 2}, optimizer={"betas": [0.9, 0.98]})


def written(folder: Path, **changes: Any) -> Path:
    translator = tiny_translator(**changes)
    write_safetensors(translator.model, translator.tokenizer, config_of(translator.model), folder)
    return folder


def int8_weights(model: Transformer) -> list[torch.Tensor]:
    """The weights that ``precision=int8`` computes with."""
    modules = in_precision(model, "int8").modules()
    return [module.unpacked()[0] for module in modules if isinstance(module, Int8Linear)]


@torch.inference_mode()
def test_int8_holds_what_int8_computes(tmp_path: Path) -> None:
    translator = tiny_translator(d_model=32, decoder_layer="ssru")
    model = translator.model
    for name in ("float32", "int8"):
        (tmp_path / name).mkdir()
        config = config_of(model)
        write_safetensors(model, translator.tokenizer, config, tmp_path / name, name)
    small = tmp_path / "int8" / "model.safetensors"
    whole = tmp_path / "float32" / "model.safetensors"
    assert small.stat().st_size < 0.45 * whole.stat().st_size
    rounded = read_safetensors(tmp_path / "int8").model
    expected = model.state_dict()
    assert rounded.state_dict().keys() == expected.keys()
    for name, weight in rounded.state_dict().items():
        step = expected[name].abs().amax(-1, keepdim=True) / 127 if weight.dim() == 2 else 0.0
        assert bool(((weight - expected[name]).abs() <= 0.501 * step + 1e-7).all()), name
    # The rounded weights round to themselves.
    weights = int8_weights(rounded)
    assert len(weights) > 10
    for weight, once in zip(weights, int8_weights(model), strict=True):
        torch.testing.assert_close(weight, once, rtol=1e-6, atol=0)
    stored = load_file(small)
    del stored["encoder.final_norm.weight"]
    save_file(stored, small)
    with pytest.raises(InputError, match=r"model\.safetensors.*final_norm"):
        read_safetensors(small.parent)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": "none", "share_layers": "all"},
        {"positions": "learned", "num_kv_heads": 2, "convolution_window": 3},
    ],
    ids=str,
)
def test_weights_are_bit_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    translator = tiny_translator(**changes)
    query = translator.model.encoder.layers[0].attention.query
    # Some processors want weights that are transposed in memory.
    query.weight.data = query.weight.data.t().contiguous().t()
    config = config_of(translator.model)
    write_safetensors(translator.model, translator.tokenizer, config, tmp_path)
    checkpoint = read_safetensors(tmp_path)
    model = checkpoint.model
    assert checkpoint.config == config_of(translator.model)
    assert model.config == translator.model.config
    assert not model.training
    # Each weight is in the file once.
    stored = load_file(tmp_path / "model.safetensors")
    assert sum(map(torch.numel, stored.values())) == sum(map(torch.numel, model.parameters()))
    expected = translator.model.state_dict()
    assert model.state_dict().keys() == expected.keys()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, expected[name])
    if changes == {}:
        assert model.projection.weight is model.source_embedding.tokens.lookup.weight


def test_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        written(tmp_path)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o640}


def test_separate_vocabularies_and_tags(tmp_path: Path) -> None:
    config = TokenizerConfig("bpe", 290, False, 0.1, 1.0, 1000)
    tags = Tags(("de",), ("web",), False, 3, 50)
    tokenizer = Tokenizer.train(config, lambda: PAIRS).with_tags(tags)
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        tie_embeddings="decoder",
    )
    write_safetensors(model, tokenizer, config_of(model), tmp_path)
    assert (tmp_path / "source.model").read_bytes() != (tmp_path / "target.model").read_bytes()
    stored = Tokenizer.from_state(read_safetensors(tmp_path).portable.tokenizer)
    assert (stored.fingerprint, stored.config) == (tokenizer.fingerprint, config)
    assert stored.tags == tags


def test_a_difference_is_noticed_and_heads_that_are_off_are_refused(tmp_path: Path) -> None:
    translator = tiny_translator()
    written(tmp_path)
    verified = verify_safetensors(translator.model, translator.tokenizer, tmp_path)
    assert verified["equal_weights"] == len(translator.model.state_dict())
    weights = load_file(tmp_path / "model.safetensors")
    name = next(iter(weights))
    weights[name].view(-1)[5] += 1e-6
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=name):
        verify_safetensors(translator.model, translator.tokenizer, tmp_path)
    switch_off(translator.model, [HeadName("cross", 1, 2)])
    with pytest.raises(InputError, match=r"cross\.1\.2"):
        write_safetensors(
            translator.model, translator.tokenizer, config_of(translator.model), tmp_path
        )


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    for file in ("config.json", "model.safetensors", "source.model"):
        (written(tmp_path) / file).unlink()
        with pytest.raises(InputError, match=str(tmp_path)):
            Translator.load(tmp_path)
    (written(tmp_path) / "model.safetensors").write_bytes(b"{}")
    with pytest.raises(InputError, match=str(tmp_path)):
        Translator.load(tmp_path)


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path) / "config.json"
    values = json.loads(file.read_text())
    search = {"algorithm": "mbr", "beam_size": 1, "candidates": 4, "utility": "subprocess:call"}
    for part, value, message in (
        ("config", None, "no config"),
        ("format", 99, "format '99'"),
        ("config", values["config"] | {"decoding": search}, r"decoding\.utility=subprocess:call"),
    ):
        file.write_text(json.dumps(values | {part: value}))
        with pytest.raises(InputError, match=f"{tmp_path}: .*{message}"):
            read_safetensors(tmp_path)
