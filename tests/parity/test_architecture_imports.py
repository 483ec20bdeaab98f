"""Imported models compute and write what transformers does, and go back bit for bit."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.helpers.interchange.architecture_folders import (
    bart_folder,
    byt5_folder,
    m2m_folder,
    mbart_folder,
    t5_folder,
)
from tests.helpers.interchange.imported_twins import assert_same_logits
from tests.helpers.interchange.marian_folders import sentences
from tests.helpers.lazy import hf
from transformer.__main__ import main
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.architecture import read_config
from transformer.interchange.architectures.subwords import ImportedIds
from transformer.interchange.import_model import read_weights
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

LIMIT = 12
"""Maximum number of tokens of a translation; random models run into it, or end before."""

GATED: dict[str, Any] = {"feed_forward_proj": "gated-gelu"}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "t5 1.0": (t5_folder, {"sentencepiece_file": True}),
    "t5 1.1": (t5_folder, {"untied": True, **GATED}),
    "t5 of other shapes": (
        t5_folder,
        {"d_kv": 16, "num_heads": 3, "feed_forward_proj": "gated-silu"}
        | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    ),
    "mt5": (t5_folder, {"kind": "mt5", "untied": True, **GATED}),
    "mbart": (mbart_folder, {"sentencepiece_file": True, "scale_embedding": True}),
    "bart": (bart_folder, {}),
    "bart of two files": (bart_folder, {"old_files": True, "fewer": 1, "scale_embedding": True}),
    "byt5": (byt5_folder, GATED),
    "madlad": (t5_folder, {"layout": "madlad", "vocab_size": 500, "untied": True, **GATED}),
    "blenderbot": (bart_folder, {"kind": "blenderbot"}),
    "m2m": (m2m_folder, {}),
    "m2m of unigrams": (m2m_folder, {"algorithm": "unigram", "missing": 7}),
    "nllb": (m2m_folder, {"kind": "nllb"}),
}
LANGUAGES = {"mbart": ("en_XX", "de_DE"), "m2m": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}
FAST = ("t5 1.1", "bart", "m2m")


class Case(NamedTuple):
    """A model of transformers in ``folder / "there"``, and its import in ``folder / "run"``."""

    folder: Path
    model: Any
    tokenizer: Any
    translator: Translator
    ids: ImportedIds


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    @cache
    def case(name: str) -> Case:
        folder = tmp_path_factory.mktemp("case")
        there, (write, changes) = folder / "there", CASES[name]
        write(there, **changes)
        for language in ("en", "de"):
            lines = sentences(language, "validation", 12)
            (folder / f"v.{language}").write_text("\n".join(lines) + "\n")
        call = ["import", f"checkpoint={there}", f"output={folder / 'run'}"]
        assert main([*call, f"validation=[{folder / 'v.en'},{folder / 'v.de'}]"]) == 0
        model = hf.AutoModelForSeq2SeqLM.from_pretrained(there, dtype=torch.float32).eval()
        _, architecture = read_config(json.loads((there / "config.json").read_text()))
        ids = architecture.files.import_tokenizer(there, model.config.vocab_size).target
        tokenizer = hf.AutoTokenizer.from_pretrained(there)
        return Case(folder, model, tokenizer, Translator.load(folder / "run"), ids)

    return case


class EndAtLimit:
    """Ends all texts at our limit of the length, with the probability that the model gives."""

    def __init__(self, length: int, end: int) -> None:
        self.length, self.end = length, end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.size(1) < self.length:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, self.end] = scores[:, self.end]
        return only


def inputs(case: Case, name: str, count: int) -> tuple[list[str], Any]:
    """Short texts, and as transformers encodes them."""
    texts = sorted(set(sentences("en", "test", 4 * count)), key=len)
    if name == "madlad":
        # Its unknown character is </s> in transformers.
        rows = case.translator.tokenizer.encode_source(texts)
        texts = [text for text, row in zip(texts, rows, strict=True) if UNK not in row]
    texts = texts[:count]
    assert len(texts) == count
    # This tokenizer of transformers writes no end.
    ended = [f"{text}</s>" for text in texts] if name == "blenderbot" else texts
    return texts, case.tokenizer(ended, return_tensors="pt", padding=True)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 20) for name in FAST),
        *(pytest.param(name, 100, marks=pytest.mark.thorough) for name in CASES),
    ],
)
def test_an_imported_model_is_that_of_transformers(
    name: str, count: int, imported: Callable[[str], Case]
) -> None:
    case = imported(name)
    model, translator, ids = case.model, case.translator, case.ids
    tokenizer = translator.tokenizer
    names = tokenizer.subwords(range(tokenizer.target_vocab_size))
    languages = LANGUAGES.get(name.split()[0])
    if languages:
        case.tokenizer.src_lang = languages[0]
    texts, encoded = inputs(case, name, count)
    given, forced = texts, {}
    if languages:
        source, target = languages
        given = [TaggedText(text, SourceTags(target, source=source)) for text in texts]
        forced["forced_bos_token_id"] = ids.rows[names.index(f"<2 {target}>")]
    elif "bart" in name:
        forced["forced_bos_token_id"] = 0
    rows = [[*row, EOS] for row in tokenizer.encode_source(given)]
    lengths = encoded.attention_mask.sum(1).tolist()
    assert [[ids.rows[i] for i in row] for row in rows] == [
        row[:length] for row, length in zip(encoded.input_ids.tolist(), lengths, strict=True)
    ]
    assert_same_logits(translator, model, encoded, rows, ids)

    never = {PAD, BOS, *tokenizer.never_written} - {EOS}
    banned = {ids.rows[one] for one in never} - set(forced.values())
    banned -= {row for one, row in enumerate(ids.rows) if one not in never}
    # Otherwise a random BART repeats a token.
    repeated = 0 if "t5" in model.config.model_type else 2
    numbers = {name: number for number, name in enumerate(names)}
    length, end = LIMIT + 1 + len(forced), ids.rows[EOS]
    for beam in (1, 5):
        with torch.no_grad():
            found = model.generate(
                **encoded,
                **forced,
                num_beams=beam,
                max_length=length + 2,
                early_stopping="never" if beam > 1 else False,
                no_repeat_ngram_size=repeated,
                bad_words_ids=[[number] for number in sorted(banned)],
                logits_processor=[EndAtLimit(length, end)],
            ).tolist()
        expected = [row[1 : row.index(end, 1)] for row in found]
        assert len(set(map(tuple, expected))) >= count // 20
        search = replace(
            translator.search,
            algorithm="beam" if beam > 1 else "greedy",
            beam_size=beam,
            max_length_ratio=0.0,
            max_length_offset=LIMIT,
            no_repeat_ngram=repeated,
        )
        ours = [
            [ids.rows[numbers[token]] for token in translation.tokens]
            for translation in replace(translator, search=search).translate(given)
        ]
        assert ours == expected


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_an_imported_model_goes_back_bit_for_bit(
    name: str,
    imported: Callable[[str], Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, model, tokenizer, translator, _ = imported(name)
    call = ["export", f"checkpoint={folder / 'run'}", "format=huggingface", "output=back"]
    assert main([*call, "max_bleu_loss=100", "trust=true"]) == 0
    before, after = read_weights(folder / "there"), read_weights(tmp_path / "back")
    assert before.keys() == after.keys()
    for key, weight in before.items():
        # No token has the first positions.
        skipped = 2 if "embed_positions" in key and name != "blenderbot" else 0
        assert torch.equal(weight[skipped:], after[key][skipped:]), key
    again = hf.AutoTokenizer.from_pretrained("back")
    texts = sentences("en", "test", 50)
    assert again(texts).input_ids == tokenizer(texts).input_ids
    loaded = hf.AutoModelForSeq2SeqLM.from_pretrained("back")
    assert loaded.config.model_type == model.config.model_type.replace("mt5", "t5")
    assert main(["import", "checkpoint=back", "output=second"]) == 0
    second = Translator.load("second")
    assert second.tokenizer.fingerprint == translator.tokenizer.fingerprint
    assert second.model.config == translator.model.config
    state = second.model.state_dict()
    assert all(
        torch.equal(weight, state[key]) for key, weight in translator.model.state_dict().items()
    )
