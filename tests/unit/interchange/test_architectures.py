"""Settings of other programs: what cannot be imported is named in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.interchange.architecture_folders import bart_folder, mbart_folder, t5_folder
from tests.helpers.interchange.marian_folders import change_json
from tests.helpers.lazy import hf
from tests.helpers.model.models import run_of, tiny_config
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.architecture import nearest_architecture, read_config
from transformer.interchange.architectures.huggingface import write_huggingface
from transformer.interchange.import_model import Imported, read_folder, read_weights
from transformer.model.build import build_transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import EOS

T5: dict[str, Any] = {
    "model_type": "t5",
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
}
BART: dict[str, Any] = {
    "model_type": "bart",
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "activation_function": "gelu",
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (T5 | {"model_type": "umt5"}, "model_type='umt5'"),
        (T5 | {"feed_forward_proj": "gated-relu"}, "feed_forward_proj='gated-relu'"),
        (T5 | {"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon=1e-05"),
        (T5 | {"d_kv": "64"}, "d_kv='64' must be a whole number"),
        (BART | {"d_model": 33}, "d_model=33 must be even"),
        (BART | {"normalize_embedding": False}, "normalize_embedding=false"),
        (BART | {"normalize_before": True}, "normalize_before=true"),
        (
            BART | {"share_encoder_decoder_embeddings": False},
            "share_encoder_decoder_embeddings=false cannot be imported as bart, only true",
        ),
        (BART | {"decoder_ffn_dim": 64}, "encoder_ffn_dim and decoder_ffn_dim differ"),
        (BART | {"model_type": "marian"}, "scale_embedding=false"),
    ],
)
def test_a_setting_that_cannot_be_imported_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(values)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"norm_order": "post"}, "marian"),
        ({"norm_order": "pre"}, "pegasus"),
        ({"positions": "fairseq", "decoder_start": EOS}, "m2m_100"),
        ({"positions": "rotary"}, "pegasus"),
    ],
    ids=str,
)
def test_the_nearest_architecture(changes: dict[str, Any], kind: str) -> None:
    assert nearest_architecture(tiny_config(**changes)).model_type == kind


def test_weights_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    weights = {name: torch.randn(3, 2) for name in ("a", "b", "c")}
    save_file(weights, tmp_path / "model.safetensors")
    whole = read_weights(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    save_file({"a": weights["a"], "c": weights["c"]}, tmp_path / "1.safetensors")
    save_file({"b": weights["b"]}, tmp_path / "2.safetensors")
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert all(torch.equal(whole[name], part) for name, part in read_weights(tmp_path).items())
    (tmp_path / "model.safetensors.index.json").unlink()
    torch.save({"a": weights["a"], "b": weights["b"]}, tmp_path / "x.bin")
    torch.save({"c": weights["c"]}, tmp_path / "y.bin")
    index = {"weight_map": {"a": "x.bin", "b": "x.bin", "c": "y.bin"}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    parts = read_weights(tmp_path)
    assert parts.keys() == weights.keys()
    assert all(torch.equal(whole[name], part) for name, part in parts.items())
    index["weight_map"]["a"] = "../secret.bin"
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="files of its own folder"):
        read_weights(tmp_path)


def test_a_model_that_was_saved_without_its_output_is_imported(tmp_path: Path) -> None:
    folder = bart_folder(tmp_path / "bart")
    whole = read_folder(folder).weights
    tensors = load_file(folder / "model.safetensors")
    kept = {k.removeprefix("model."): w for k, w in tensors.items() if k.startswith("model.")}
    save_file(kept, folder / "model.safetensors")
    found = read_folder(folder).weights
    assert all(
        torch.equal(whole[name], weight) for name, weight in found.items() if "bias" not in name
    )


def written_back(found: Imported, tokenizer: Tokenizer, folder: Path) -> Translator:
    """The translator of an imported shape with other weights, exported to a folder."""
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    model = build_transformer(found.model.sized(*sizes))
    translator = Translator(model, tokenizer, SearchConfig(min_length=4), batch_tokens=100)
    folder.mkdir()
    run = run_of(model.config, data={"source": "en_XX", "target": "de_DE"})
    write_huggingface(translator, run, folder)
    return translator


def test_words_that_were_added_to_t5_go_back_with_their_vectors(tmp_path: Path) -> None:
    found = read_folder(t5_folder(tmp_path / "t5"))
    tokenizer = found.tokenizer.with_words(["Zugspitze"])
    translator = written_back(found, tokenizer, tmp_path / "back")
    again = read_folder(tmp_path / "back")
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "back")
    table = "source_embedding.tokens.lookup.weight"
    for text in ("Zugspitze", "the Zugspitze is <extra_id_3> the man", "a man"):
        [ours], [after] = tokenizer.encode_source([text]), again.tokenizer.encode_source([text])
        spelled = tokenizer.source_subwords(ours)
        assert ("Zugspitze" in spelled) == ("Zugspitze" in text)
        assert again.tokenizer.source_subwords(after) == spelled
        assert torch.equal(again.weights[table][after], translator.model.state_dict()[table][ours])
        if "extra" not in text:
            assert theirs.tokenize(text) == spelled


def test_an_architecture_without_room_for_added_words_refuses_them(tmp_path: Path) -> None:
    found = read_folder(mbart_folder(tmp_path / "mbart"))
    with pytest.raises(InputError, match=r"tokenizer\.add"):
        written_back(found, found.tokenizer.with_words(["Zugspitze"]), tmp_path / "back")


def test_an_export_has_the_minimum_length_of_the_search(tmp_path: Path) -> None:
    found = read_folder(bart_folder(tmp_path / "bart"))
    written_back(found, found.tokenizer, tmp_path / "back")
    values = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert values["min_length"] == 5
    change_json(tmp_path / "bart" / "config.json", min_length=5)
    assert read_folder(tmp_path / "bart").decoding.min_length == 4


def test_a_damaged_folder_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def refused(folder: Path, message: str) -> None:
        capsys.readouterr()
        assert main(["import", f"checkpoint={folder}", "output=run", "languages=en-de"]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("error:") == 1, error
        assert not Path("run").exists()

    t5 = t5_folder(tmp_path / "t5")
    change_json(t5 / "config.json", vocab_size=100)
    refused(t5, "vocab_size=100 pieces and sentinels, not 600")
    change_json(t5 / "config.json", vocab_size=640)
    change_json(t5 / "generation_config.json", decoder_start_token_id=5)
    refused(t5, "decoder_start_token_id=5")
    old = t5_folder(tmp_path / "old", sentencepiece_file=True)
    change_json(old / "tokenizer_config.json", extra_ids=1200)
    refused(old, "tokenizer_config.json.extra_ids=1200 must be 0 to 1000")
    mbart = mbart_folder(tmp_path / "mbart")
    change_json(mbart / "tokenizer_config.json", tokenizer_class="MBartTokenizer")
    refused(mbart, "tokenizer_class=MBartTokenizer cannot be imported")
    bart = bart_folder(tmp_path / "bart")
    weights = load_file(bart / "model.safetensors")
    save_file(weights | {"lm_head.weight": torch.zeros(501, 32)}, bart / "model.safetensors")
    refused(bart, "lm_head.weight is not that of the embeddings")
    change_json(bart / "config.json", vocab_size=400)
    save_file(weights, bart / "model.safetensors")
    refused(bart, "config.json has vocab_size=400, and its tokenizer 501 tokens")
