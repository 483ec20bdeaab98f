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
from tests.helpers.runs.tuning_runs import write_run
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.checkpoint.exported import read_safetensors
from transformer.common.errors import InputError
from transformer.common.processor import PROCESSORS
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


def test_reading_draws_no_weights(tmp_path: Path) -> None:
    folder, before = written(tmp_path), torch.get_rng_state()
    read_safetensors(folder)
    assert torch.equal(torch.get_rng_state(), before)


def is_int8(module: torch.nn.Module) -> bool:
    return isinstance(module, Int8Linear)


@torch.inference_mode()
def test_int8_holds_what_int8_computes(tmp_path: Path) -> None:
    translator = tiny_translator(d_model=32, decoder_layer="ssru")
    model, tokenizer = translator.model, translator.tokenizer
    for name, quantization in (("whole", "float32"), ("small", "int8")):
        (tmp_path / name).mkdir()
        write_safetensors(model, tokenizer, config_of(model), tmp_path / name, quantization)
    whole, small = (tmp_path / name / "model.safetensors" for name in ("whole", "small"))
    assert small.stat().st_size < 0.45 * whole.stat().st_size
    found = read_safetensors(small.parent).model
    weights, expected = found.state_dict(), model.state_dict()
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        apart = (weight - expected[name]).abs()
        steps = expected[name].abs().amax(-1, keepdim=True) / 127 if weight.dim() == 2 else 0.0
        assert bool((apart <= 0.501 * steps + 1e-7).all()), name
    # The rounded weights round to themselves.
    again, once = (
        [one.unpacked()[0] for one in in_precision(each, "int8").modules() if is_int8(one)]
        for each in (found, model)
    )
    assert len(again) == len(once) > 10
    for one, other in zip(again, once, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=0)
    stored = load_file(small)
    del stored["encoder.final_norm.weight"]
    save_file(stored, small)
    with pytest.raises(InputError, match=r"model\.safetensors: it lacks .*final_norm"):
        read_safetensors(small.parent)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": "none"},
        {"share_layers": "all"},
        {"positions": "relative", "norm": "rms", "activation": "swiglu"},
        {"positions": "learned", "num_kv_heads": 2, "convolution_window": 3},
    ],
    ids=str,
)
def test_weights_are_bit_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    translator = tiny_translator(**changes)
    found = read_safetensors(written(tmp_path, **changes))
    assert found.config == config_of(translator.model)
    assert found.model.config == translator.model.config
    assert not found.model.training
    # Each weight is in the file once, under its name.
    weights = load_file(tmp_path / "model.safetensors")
    assert weights.keys() <= dict(translator.model.named_parameters(remove_duplicate=False)).keys()
    sizes = [sum(map(torch.numel, each)) for each in (weights.values(), found.model.parameters())]
    assert sizes[0] == sizes[1]
    expected = translator.model.state_dict()
    assert found.model.state_dict().keys() == expected.keys()
    for name, weight in found.model.state_dict().items():
        assert torch.equal(weight, expected[name])
    if changes == {}:
        assert found.model.projection.weight is found.model.source_embedding.tokens.lookup.weight
    tokenizer = Tokenizer.from_state(found.portable.tokenizer)
    assert tokenizer.fingerprint == translator.tokenizer.fingerprint
    assert tokenizer.config == translator.tokenizer.config


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
    found = Tokenizer.from_state(read_safetensors(tmp_path).portable.tokenizer)
    assert (found.fingerprint, found.config) == (tokenizer.fingerprint, config)
    assert found.tags == tags


def test_a_difference_is_noticed(tmp_path: Path) -> None:
    translator = tiny_translator()
    written(tmp_path)
    verified = verify_safetensors(translator.model, translator.tokenizer, tmp_path)
    assert verified["equal_weights"] == len(translator.model.state_dict())
    weights = load_file(tmp_path / "model.safetensors")
    name = next(iter(weights))
    weights[name].view(-1)[5] += 1e-6
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=f"{name} differ from the model"):
        verify_safetensors(translator.model, translator.tokenizer, tmp_path)


def test_heads_that_are_off_are_refused(tmp_path: Path) -> None:
    translator = tiny_translator()
    switch_off(translator.model, [HeadName("cross", 1, 2)])
    with pytest.raises(InputError, match=r"has all heads, cross\.1\.2 too"):
        write_safetensors(
            translator.model, translator.tokenizer, config_of(translator.model), tmp_path
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "source.model"])
@pytest.mark.parametrize("content", [None, b"{}"])
def test_a_damaged_folder_is_refused(file: str, content: bytes | None, tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=str(tmp_path)):
        Translator.load(tmp_path)


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("config", None, "it has no config"),
        ("format", 99, "has format '99', this version reads format"),
        (
            "config",
            {
                "decoding": {
                    "algorithm": "mbr",
                    "beam_size": 1,
                    "candidates": 4,
                    "utility": "subprocess:call",
                }
            },
            r"decoding\.utility=subprocess:call is a program, which no checkpoint names",
        ),
    ],
)
def test_wrong_settings_are_refused(part: str, value: Any, says: str, tmp_path: Path) -> None:
    file = written(tmp_path) / "config.json"
    values = json.loads(file.read_text())
    if isinstance(value, dict):
        value = values[part] | value
    file.write_text(json.dumps(values | {part: value}))
    with pytest.raises(InputError, match=f"{tmp_path}: .*{says}"):
        read_safetensors(tmp_path)


def test_a_folder_translates_in_python(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    translator = Translator.load(run)
    (tmp_path / "folder").mkdir()
    config = load_checkpoint(run).config
    write_safetensors(translator.model, translator.tokenizer, config, tmp_path / "folder")
    again = Translator.load(tmp_path / "folder")
    assert again.search == translator.search
    assert again.translate(["a dog"]) == translator.translate(["a dog"])


def test_a_model_that_was_loaded_to_translate_is_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = PROCESSORS["amd-avx2"]
    monkeypatch.setattr("transformer.model.layers.linear.processor", lambda: row)
    translator = Translator.load(write_run(tmp_path))
    assert translator.model.encoder.layers[0].attention.query.weight.t().is_contiguous()  # type: ignore[union-attr]
    expected = translator.model.state_dict()
    (tmp_path / "written").mkdir()
    write_safetensors(
        translator.model, translator.tokenizer, config_of(translator.model), tmp_path / "written"
    )
    found = read_safetensors(tmp_path / "written").model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())
