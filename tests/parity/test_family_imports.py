"""Imported T5, mBART-50 and BART models compute and write what transformers does, and go back."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.helpers.interchange.family_folders import (
    bart_folder,
    byt5_folder,
    mbart_folder,
    t5_folder,
)
from tests.helpers.interchange.imported_twins import assert_same_logits, limited_search
from tests.helpers.interchange.marian_folders import sentences
from transformer.__main__ import main
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.data.tokenization.tokenizer import BOS, EOS, PAD
from transformer.decoding.translation.translator import Translator
from transformer.interchange.families.family import read_config
from transformer.interchange.families.subwords import ImportedIds
from transformer.interchange.import_folder import read_weights

LIMIT = 40
GATED: dict[str, Any] = {"feed_forward_proj": "gated-gelu"}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "t5 1.0": (t5_folder, {"sentencepiece_file": True, "ends": 6.0}),
    "t5 1.1": (t5_folder, {"untied": True, **GATED}),
    "t5 gated and tied": (t5_folder, GATED),
    "t5 untied": (t5_folder, {"untied": True}),
    "t5 of other shapes": (
        t5_folder,
        {"d_kv": 16, "num_heads": 3, "feed_forward_proj": "gated-silu", "seed": 2}
        | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    ),
    "every id has a name": (t5_folder, {"vocab_size": 600}),
    "mt5": (t5_folder, {"kind": "mt5", "untied": True, **GATED}),
    "mbart": (mbart_folder, {"scale_embedding": True}),
    "mbart of a sentencepiece file": (
        mbart_folder,
        {"sentencepiece_file": True, "activation_function": "gelu_new"},
    ),
    "bart": (bart_folder, {}),
    "bart of two files": (bart_folder, {"old_files": True, "scale_embedding": True, "seed": 2}),
    "bart-large-cnn": (bart_folder, {"fewer": 1}),
    "byt5": (byt5_folder, GATED),
}
FAST = ("t5 1.1", "bart")


def imported(name: str, folder: Path) -> tuple[Any, Any, Translator, ImportedIds]:
    """The model and tokenizer of transformers, our translator, and the ids there of ours."""
    write, changes = CASES[name]
    write(folder, **changes)
    validation = []
    for language in ("en", "de"):
        file = folder.parent / f"v.{language}"
        file.write_text("\n".join(sentences(language, "validation", 12)) + "\n")
        validation.append(str(file))
    call = ["import", f"checkpoint={folder}", f"output={folder.parent / 'run'}"]
    assert main([*call, f"validation=[{','.join(validation)}]"]) == 0
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    _, family = read_config(json.loads((folder / "config.json").read_text()))
    ids = family.import_tokenizer(folder, model.config.vocab_size).target
    return (
        model,
        AutoTokenizer.from_pretrained(folder),
        Translator.load(folder.parent / "run"),
        ids,
    )


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 20) for name in FAST),
        *(pytest.param(name, 500, marks=pytest.mark.thorough) for name in CASES),
    ],
)
def test_an_imported_model_is_that_of_transformers(name: str, count: int, tmp_path: Path) -> None:
    model, tokenizer, translator, ids = imported(name, tmp_path / "there")
    texts: list[str] = sentences("en", "test", count)
    given, forced = texts, {}
    if "mbart" in name:
        tokenizer.src_lang = "en_XX"
        given = [TaggedText(text, SourceTags("de_DE", source="en_XX")) for text in texts]
        forced["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids("de_DE")
    elif "bart" in name:
        forced["forced_bos_token_id"] = 0
    encoded = tokenizer(texts, return_tensors="pt", padding=True)
    rows = [[*row, EOS] for row in translator.tokenizer.encode_source(given)]
    lengths = encoded.attention_mask.sum(1).tolist()
    assert [[ids.rows[i] for i in row] for row in rows] == [
        row[:length] for row, length in zip(encoded.input_ids.tolist(), lengths, strict=True)
    ]
    few = {key: value[:60] for key, value in encoded.items()}
    assert_same_logits(translator, model, Encoded(few), rows[:60], ids)

    never = {PAD, BOS, *translator.tokenizer.never_written} - {EOS}
    banned = {ids.rows[one] for one in never} - {ids.rows[EOS], *forced.values()}
    # Otherwise a random BART repeats a token, and hardly ends.
    repeated = 0 if "t5" in model.config.model_type else 2
    numbers = {one: i for i, one in enumerate(names(translator))}
    for beam in (1, 5):
        with torch.no_grad():
            found = model.generate(
                **encoded,
                **forced,
                num_beams=beam,
                max_length=LIMIT + 2 + len(forced),
                early_stopping="never" if beam > 1 else False,
                no_repeat_ngram_size=repeated,
                bad_words_ids=[[number] for number in sorted(banned)],
            ).tolist()
        end = ids.rows[EOS]
        expected = [row[1 : row.index(end, 1)] if end in row[1:] else None for row in found]
        # At the limit of the length, transformers takes the end for certain.
        whole = [i for i, row in enumerate(expected) if row and len(row) < LIMIT]
        assert len(whole) >= min(10, len(texts) // 8), len(whole)
        assert len({tuple(expected[i] or ()) for i in whole}) > 3
        search = limited_search(translator, beam, LIMIT)
        search = search.with_search(replace(search.search, no_repeat_ngram=repeated))
        ours = search.translate(given)
        found_ids = [[ids.rows[numbers[token]] for token in one.tokens] for one in ours]
        assert [found_ids[i] for i in whole] == [expected[i] for i in whole]


class Encoded(dict[str, Any]):
    """Inputs of transformers, some of them."""

    __getattr__ = dict.__getitem__


def names(translator: Translator) -> list[str]:
    tokenizer = translator.tokenizer
    return tokenizer.subwords(range(tokenizer.target_vocab_size))


@pytest.mark.parametrize(
    "name",
    ["mbart", *(pytest.param(n, marks=pytest.mark.thorough) for n in CASES if n != "mbart")],
)
def test_an_imported_model_goes_back_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer, translator, _ = imported(name, tmp_path / "there")
    call = ["export", "checkpoint=run", "format=huggingface", "output=back"]
    assert main([*call, "max_bleu_loss=100", "trust=true"]) == 0
    before, after = read_weights(tmp_path / "there"), read_weights(tmp_path / "back")
    assert before.keys() == after.keys()
    for key, weight in before.items():
        # No token has the first positions.
        skipped = 2 if "embed_positions" in key else 0
        assert torch.equal(weight[skipped:], after[key][skipped:]), key
    again = AutoTokenizer.from_pretrained("back")
    texts = sentences("en", "test", 50)
    assert again(texts).input_ids == tokenizer(texts).input_ids
    loaded = AutoModelForSeq2SeqLM.from_pretrained("back").eval()
    assert loaded.config.model_type == model.config.model_type.replace("mt5", "t5")
    assert main(["import", "checkpoint=back", "output=second"]) == 0
    second = Translator.load("second")
    assert second.tokenizer.fingerprint == translator.tokenizer.fingerprint
    assert second.model.config == translator.model.config
    state = second.model.state_dict()
    assert all(torch.equal(one, state[key]) for key, one in translator.model.state_dict().items())


@pytest.mark.parametrize("changes", [[], ["model.lora_rank=4"], ["model.freeze=[embeddings]"]])
@pytest.mark.parametrize("name", ["t5 1.1", "bart", "byt5"])
@pytest.mark.thorough
def test_an_imported_model_learns_and_goes_back(
    name: str, changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    imported(name, tmp_path / "there")
    call = ["finetune_from=run", "data=files", "data.source=en", "data.target=de"]
    call += ["data.train=[v.en,v.de]", "data.validation=[v.en,v.de]", "data.test_size=0"]
    call += ["trainer.max_steps=40", "trainer.val_check_interval=40", "schedule.warmup=5"]
    call += ["optimizer.lr=0.005", "hydra.run.dir=tuned", "test=false", *changes]
    assert main(["train", *call]) == 0
    with Path("tuned/metrics.csv").open() as lines:
        losses = [float(row["val/loss"]) for row in csv.DictReader(lines) if row["val/loss"]]
    assert losses[-1] < losses[0] - 0.2, losses
    assert (
        main(
            ["export", "checkpoint=tuned", "format=huggingface", "output=back", "max_bleu_loss=100"]
        )
        == 0
    )
    values = json.loads(Path("back/config.json").read_text())
    ids = read_config(values)[1].import_tokenizer(Path("back"), values["vocab_size"]).target
    model = AutoModelForSeq2SeqLM.from_pretrained("back").eval()
    texts, translator = sentences("en", "validation", 12), Translator.load("tuned")
    encoded = AutoTokenizer.from_pretrained("back")(texts, return_tensors="pt", padding=True)
    rows = [[*row, EOS] for row in translator.tokenizer.encode_source(texts)]
    assert_same_logits(translator, model, encoded, rows, ids)
