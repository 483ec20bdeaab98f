"""Settings of other programs: what cannot be imported is named in one line."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import wordy_translator
from tests.helpers.interchange.architecture_folders import (
    T5_SIZES,
    bart_folder,
    m2m_folder,
    mbart_folder,
    t5_folder,
)
from tests.helpers.interchange.marian_folders import SIZES, change_json, marian_folder
from tests.helpers.lazy import hf
from tests.helpers.model.models import run_of, tiny_config
from transformer.__main__ import main
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.architecture import nearest_architecture, read_config
from transformer.interchange.architectures.huggingface import (
    generate_greedily,
    verify_huggingface,
    write_huggingface,
)
from transformer.interchange.import_model import Imported, read_folder, read_weights
from transformer.interchange.readme import Published, model_card
from transformer.model.build import build_transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import EOS

T5 = {"model_type": "t5", "num_layers": 2, **T5_SIZES}
BART = {"model_type": "bart", "activation_function": "gelu", **SIZES}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (T5 | {"model_type": "umt5"}, "model_type='umt5'"),
        (T5 | {"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon=1e-05"),
        (T5 | {"d_kv": "64"}, "d_kv='64' must be a whole number"),
        (BART | {"d_model": 33}, "d_model=33 must be even"),
        (BART | {"normalize_embedding": False}, "normalize_embedding=false"),
        (BART | {"share_encoder_decoder_embeddings": False}, "cannot be imported as bart"),
        (BART | {"decoder_ffn_dim": 64}, "encoder_ffn_dim and decoder_ffn_dim differ"),
    ],
)
def test_a_setting_that_cannot_be_imported_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_config(values)


def test_the_nearest_architecture() -> None:
    for changes, kind in (
        ({"norm_order": "post"}, "marian"),
        ({"norm_order": "pre"}, "pegasus"),
        ({"positions": "fairseq", "decoder_start": EOS}, "m2m_100"),
    ):
        assert nearest_architecture(tiny_config(**changes)).model_type == kind


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_a_source_may_be_longer_than_every_target(norm_order: str, tmp_path: Path) -> None:
    translator = wordy_translator(norm_order=norm_order, max_length=16, max_source_length=40)
    write_huggingface(translator, run_of(translator.model.config), tmp_path)
    pairs = [("the dog sees a cat . " * 3, ("ein hund",)), ("a dog", ("ein hund",))]
    assert verify_huggingface(translator, tmp_path, pairs, RAW)["equal"] == 1


def test_blank_lines_between_documents_are_not_compared(tmp_path: Path) -> None:
    translator = wordy_translator(norm_order="post", max_length=16)
    write_huggingface(translator, run_of(translator.model.config), tmp_path)
    pairs = [("a dog runs .", ("ein hund",)), ("", ("",)), ("a cat", ("eine katze",))]
    assert generate_greedily(tmp_path, [""]) != [""]
    found = verify_huggingface(translator, tmp_path, pairs, RAW)
    assert (found["equal"], found["sentences"]) == (1, 2)


def test_tags_of_texts_are_codes_of_marian(tmp_path: Path) -> None:
    imported = read_folder(marian_folder(tmp_path / "marian", codes=("deu", "nld")))
    translator = written_back(imported, imported.tokenizer, tmp_path / "back")
    pairs = [
        (TaggedText(text, SourceTags(code)), ("ein mann",))
        for text in ("a man sleeps .", "two dogs run in the street .")
        for code in ("deu", "nld")
    ]
    assert verify_huggingface(translator, tmp_path / "back", pairs, RAW)["equal"] == 1


def test_weights_in_several_files_are_those_of_one(tmp_path: Path) -> None:
    weights = {name: torch.randn(3, 2) for name in ("a", "b", "c")}
    save_file({"a": weights["a"], "c": weights["c"]}, tmp_path / "1.safetensors")
    save_file({"b": weights["b"]}, tmp_path / "2.safetensors")
    safe = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}}
    torch.save({"a": weights["a"], "b": weights["b"]}, tmp_path / "x.bin")
    torch.save({"c": weights["c"]}, tmp_path / "y.bin")
    pickled = {"weight_map": {"a": "x.bin", "b": "x.bin", "c": "y.bin"}}
    for name, index in (("model.safetensors", safe), ("pytorch_model.bin", pickled)):
        file = tmp_path / f"{name}.index.json"
        file.write_text(json.dumps(index))
        parts = read_weights(tmp_path)
        assert parts.keys() == weights.keys()
        assert all(torch.equal(weights[key], part) for key, part in parts.items())
        index["weight_map"]["a"] = "../secret.bin"
        file.write_text(json.dumps(index))
        with pytest.raises(InputError, match="files of its own folder"):
            read_weights(tmp_path)
        file.unlink()


def written_back(imported: Imported, tokenizer: Tokenizer, folder: Path) -> Translator:
    """The translator of an imported shape with other weights, exported to a folder."""
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    model = build_transformer(imported.model.sized(*sizes))
    search = SearchConfig(min_length=4, stopping="full")
    translator = Translator(model, tokenizer, search, batch_tokens=100)
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


def test_the_program_of_a_card_translates_into_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = read_folder(mbart_folder(tmp_path / "mbart"))
    folder = tmp_path / "back"
    translator = written_back(imported, imported.tokenizer, folder)
    change_json(folder / "generation_config.json", num_beams=1, min_length=0)
    run = run_of(translator.model.config, data={"source": "en_XX", "target": "de_DE"})
    card = model_card(translator.tokenizer, run, {}, "transformers", Published("mit"))
    [program] = re.findall(r"```python\n(.*?)```", card, re.S)
    expected = generate_greedily(folder, [TaggedText("a man", SourceTags("de_DE", source="en_XX"))])
    capsys.readouterr()
    monkeypatch.chdir(folder)
    exec(program.replace("…", "a man"), {})
    assert capsys.readouterr().out == f"{expected}\n"


def test_an_architecture_without_room_for_added_words_refuses_them(tmp_path: Path) -> None:
    found = read_folder(mbart_folder(tmp_path / "mbart"))
    with pytest.raises(InputError, match=r"tokenizer\.add"):
        written_back(found, found.tokenizer.with_words(["Zugspitze"]), tmp_path / "back")


def test_a_size_of_positions_for_each_side_has_no_place_in_bart(tmp_path: Path) -> None:
    imported = read_folder(bart_folder(tmp_path / "bart"))
    longer = imported._replace(model=replace(imported.model, max_source_length=200))
    with pytest.raises(InputError, match=r"needs model\.max_source_length=null"):
        written_back(longer, imported.tokenizer, tmp_path / "back")


def test_bart_keeps_its_minimum_length_and_stopping_and_needs_no_output(tmp_path: Path) -> None:
    folder = bart_folder(tmp_path / "bart")
    imported = read_folder(folder)
    written_back(imported, imported.tokenizer, tmp_path / "back")
    values = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert (values["min_length"], values["early_stopping"]) == (5, True)
    assert read_folder(tmp_path / "back").decoding.stopping == "full"
    change_json(folder / "config.json", min_length=5, early_stopping="never")
    # Saved without its output, as facebook/bart-large is.
    tensors = load_file(folder / "model.safetensors")
    kept = {k.removeprefix("model."): w for k, w in tensors.items() if k.startswith("model.")}
    save_file(kept, folder / "model.safetensors")
    again = read_folder(folder)
    assert (again.decoding.min_length, again.decoding.stopping) == (4, "exact")
    assert all(
        torch.equal(imported.weights[name], weight)
        for name, weight in again.weights.items()
        if "bias" not in name
    )


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
    m2m = m2m_folder(tmp_path / "m2m")
    change_json(m2m / "tokenizer_config.json", extra_special_tokens=[])
    refused(m2m, "lacks language codes")
    nllb = m2m_folder(tmp_path / "nllb", kind="nllb")
    change_json(nllb / "tokenizer_config.json", legacy_behaviour=True)
    refused(nllb, "legacy_behaviour=false")
    change_json(nllb / "tokenizer_config.json", legacy_behaviour=False, src_lang="xx")
    refused(nllb, "en is no language of the model")
    change_json(nllb / "tokenizer.json", model="../../secret")
    refused(nllb, "tokenizer.json cannot be read")
