"""CTranslate2 and Argos translate as our model does, or refuse it by name."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.models import run_of, tiny_config, tiny_transformer
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.fingerprint import write_fingerprint
from transformer.decoding.long_inputs import SourceLimits
from transformer.decoding.search.shortlist import ENGINE_FILE, Shortlist
from transformer.decoding.translator import Translator
from transformer.interchange.argos import translate_as_argos, verify_argos, write_argos
from transformer.interchange.ctranslate2 import (
    CTranslate2Engine,
    verify_ctranslate2,
    vocabulary_map,
    write_ctranslate2,
)
from transformer.interchange.readme import Published, model_card
from transformer.interchange.safetensors import write_settings
from transformer.interchange.verification import (
    CTRANSLATE2,
    PLAIN,
    TRANSFORMERS,
    Values,
    agreement,
    check_expressible,
    compare_texts,
)
from transformer.model.head_masks import HeadName, switch_off
from transformer.model.transformer import Transformer
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, TokenizerConfig

REFERENCED = [(source, (target,)) for source, target in PAIRS]
TEXTS = [source for source, _ in PAIRS] + [PAIRS[0][0], "a", "", "  ", "the dog " * 6]


def exported(translator: Translator, folder: Path) -> Translator:
    """The translator with CTranslate2 as its engine, of an export in the folder."""
    write_ctranslate2(translator.model, translator.tokenizer, folder)
    write_fingerprint(translator.model, translator.tokenizer, folder)
    return replace(translator, engine=CTranslate2Engine(folder))


def willing(**changes: Any) -> Translator:
    """Its translations end, some of them before their longest length.

    Padding and beginning are as improbable as a trained model has them: the engine renormalizes
    without them, ours does not.
    """
    translator = tiny_translator(**{"tie_embeddings": "none", "stopping": "full"} | changes)
    let_end(translator.model)
    return translator


def let_end(model: Transformer) -> None:
    """Make the end of a sentence probable, padding and beginning improbable."""
    with torch.no_grad():
        # The first component of the hidden states is always 10.
        model.decoder.final_norm.weight[0] = 0
        model.decoder.final_norm.bias[0] = 10
        model.projection.weight[:, 0] = 0
        model.projection.weight[[PAD, BOS], 0] = -10
        model.projection.weight[EOS, 0] = 0.2


def greedy_by_ctranslate2(folder: Path, sources: list[list[str]]) -> list[list[str]]:
    """Translations by the library alone, of at most 30 tokens."""
    engine = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)
    results = engine.translate_batch(
        sources, beam_size=1, max_decoding_length=30, length_penalty=0.0
    )
    return [result.hypotheses[0] for result in results]


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_order": "post", "num_kv_heads": 1, "activation": "gelu"},
        {"positions": "rotary", "num_kv_heads": 2, "norm": "rms", "activation": "swiglu"},
        {"head_dim": 8, "activation": "geglu"},
        {"positions": "rotary", "query_key_norm": "self"},
        {"norm": "rms", "norm_order": "post", "share_layers": "all"},
        {"encoder_layers": 3, "decoder_layers": 1, "tie_embeddings": "none"},
    ],
    ids=str,
)
def test_greedy_translations_are_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    translator = tiny_translator(algorithm="greedy", beam_size=1, max_length_offset=30, **changes)
    tokenizer = translator.tokenizer
    write_ctranslate2(translator.model, tokenizer, tmp_path)
    texts = [text for text in TEXTS if text.strip()]
    sources = [tokenizer.source_subwords(subwords) for subwords in tokenizer.encode_source(texts)]
    found = greedy_by_ctranslate2(tmp_path, sources)
    expected = [list(translation.tokens)[:30] for translation in translator.translate(texts)]
    assert [tokens[:30] for tokens in found] == expected


def test_tags_are_pieces_that_no_text_is_taken_for(tmp_path: Path) -> None:
    tags = Tags(targets=("de", "fr"), corpora=("web",), sentences=2, subwords=60)
    tokenizer = tiny_tokenizer().with_tags(tags).tagged(SourceTags("fr"))
    size = tokenizer.source_vocab_size
    model = tiny_transformer(source_vocab_size=size, target_vocab_size=size)
    with torch.no_grad():
        model.projection.weight.mul_(2)
        # The model would say nothing but a tag, if it could.
        model.projection.weight[size - 1] *= 50
    search = search_config(algorithm="greedy", beam_size=1, max_length_offset=30)
    translator = Translator(model, tokenizer, search, 200)
    texts = ["a dog runs .\ntwo cats sleep .", "<2 de> a dog", TaggedText("a", SourceTags("de"))]
    write_ctranslate2(model, tokenizer, tmp_path)
    sources = [tokenizer.source_subwords(subwords) for subwords in tokenizer.encode_source(texts)]
    assert [row[0] for row in sources] == ["<2 fr>", "<2 fr>", "<2 de>"]
    assert sources[0].count("< >") == 1 and "<2 de>" not in sources[1]
    found = greedy_by_ctranslate2(tmp_path, sources)
    expected = [list(translation.tokens)[:30] for translation in translator.translate(texts)]
    assert [tokens[:30] for tokens in found] == expected
    assert not {"<2 de>", "<2 fr>", "<tag web>"} & {subword for row in found for subword in row}


@pytest.mark.parametrize(
    ("changes", "has", "says"),
    [
        ({"norm_order": "sandwich"}, CTRANSLATE2, "pre or post; .* format=safetensors"),
        ({"num_kv_heads": 2}, TRANSFORMERS, "null; .*format=ctranslate2 or safetensors"),
    ],
    ids=str,
)
def test_a_model_that_a_program_does_not_have_is_refused(
    changes: dict[str, Any], has: Values, says: str
) -> None:
    [(name, value)] = changes.items()
    with pytest.raises(InputError, match=f"model.{name}={value} .*program, only {says}"):
        check_expressible(tiny_config(**changes), "the program", has)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "greedy", "beam_size": 1, "length_penalty": 1.0},
        {"beam_size": 3, "length_penalty": 0.6, "length_penalty_form": "average"},
        {"beam_size": 5, "length_penalty": -0.5, "nbest": 5, "max_length_offset": 40},
        {"beam_size": 3, "max_length_ratio": 0.5, "max_length_offset": 1, "nbest": 3},
        {"beam_size": 3, "positions": "learned", "max_length": 14, "max_length_offset": 40},
        {"positions": "learned", "max_length": 14, "max_source_length": 99, "beam_size": 1},
        {"positions": "learned", "max_length": 14, "max_source_length": 9, "beam_size": 1},
        # Heads have an epsilon of their own.
        {"query_key_norm": "self", "norm_epsilon": 1e-2, "positions": "rotary", "num_kv_heads": 2},
    ],
    ids=str,
)
def test_translations_and_scores_are_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    ours = willing(**changes)
    theirs = exported(ours, tmp_path)
    for expected, found in zip(ours.translate(TEXTS), theirs.translate(TEXTS), strict=True):
        assert found.text == expected.text
        assert found.tokens == expected.tokens
        assert found.source_tokens == expected.source_tokens
        assert len(found.nbest) == len(expected.nbest)
        for candidate, wanted in zip(found.nbest, expected.nbest, strict=True):
            assert candidate.log_probability == pytest.approx(wanted.log_probability, abs=1e-4)
            assert candidate.score == pytest.approx(wanted.score, abs=1e-4)


def test_attention_links_and_constraints_are_those_of_the_model(tmp_path: Path) -> None:
    ours = willing(beam_size=2)
    theirs = exported(ours, tmp_path)
    assert theirs.translate([]) == []
    wanted = {"attention": True, "alignment": True}
    for expected, found in zip(
        ours.translate(TEXTS, **wanted), theirs.translate(TEXTS, **wanted), strict=True
    ):
        assert found.alignment == expected.alignment
        if expected.attention is not None:
            torch.testing.assert_close(found.attention, expected.attention)
    asked = [None, Constraints(prefix="die katze")]
    expected, found = (
        [translation.text for translation in one.translate(["the dog"] * 2, asked)]
        for one in (ours, theirs)
    )
    assert found == expected and expected[0] != expected[1]


def test_a_search_that_the_engine_cannot_do_is_named(tmp_path: Path) -> None:
    exported(willing(beam_size=3, stopping="exact"), tmp_path)
    changes = {"algorithm": "sampling", "beam_size": 1, "coverage_penalty": 0.2}
    changes |= {"eos_threshold": 1.5, "min_length": 2, "no_repeat_ngram": 3}
    with pytest.raises(InputError) as refused:
        CTranslate2Engine(tmp_path)(tiny_translator(**changes))
    for name in changes.keys() - {"beam_size"}:
        assert f"decoding.{name}={changes[name]} cannot be done alike" in str(refused.value)


def test_a_damaged_export_or_one_of_another_model_is_refused(tmp_path: Path) -> None:
    ours = willing()
    exported(ours, tmp_path)
    (tmp_path / "model.bin").write_bytes(b"no model")
    with pytest.raises(InputError, match=str(tmp_path)):
        CTranslate2Engine(tmp_path)(ours)
    with torch.no_grad():
        ours.model.encoder.layers[0].attention.query.bias[0] += 1e-3
    with pytest.raises(InputError, match="not exported from this checkpoint"):
        CTranslate2Engine(tmp_path)(ours)


def test_heads_that_are_off_are_off_in_the_export(tmp_path: Path) -> None:
    ours = willing(beam_size=2)
    before = [translation.tokens for translation in ours.translate(TEXTS)]
    switch_off(ours.model, [HeadName("cross", 1, 0), HeadName("decoder", 0, 2)])
    expected = [translation.tokens for translation in ours.translate(TEXTS)]
    assert expected != before
    engine = exported(ours, tmp_path)
    assert [translation.tokens for translation in engine.translate(TEXTS)] == expected


def test_a_shortlist_is_that_of_our_search(tmp_path: Path) -> None:
    ours = willing(beam_size=3, nbest=2)
    tokenizer = ours.tokenizer
    generator = np.random.default_rng(2)
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    candidates = torch.from_numpy(generator.integers(sizes[1], size=(sizes[0], 3)))
    shortlist = Shortlist(torch.arange(6), candidates)
    shortlist.save(tmp_path / "short.npz", tokenizer)
    search = replace(ours.search, shortlist=str(tmp_path / "short.npz"))
    with pytest.raises(InputError, match=r"vmap\.txt"):
        exported(replace(ours, search=search), tmp_path)
    (tmp_path / ENGINE_FILE).write_text(
        vocabulary_map(tmp_path / "short.npz", tokenizer), encoding="utf-8"
    )
    theirs = exported(replace(ours, search=search), tmp_path)
    # A batch each, as the union of all sources is searched.
    for text in TEXTS[:4]:
        [expected] = replace(ours, search=search).translate([text])
        [found] = theirs.translate([text])
        assert found.tokens == expected.tokens
        assert found.score == pytest.approx(expected.score, abs=1e-4)
        assert found.tokens != ours.translate([text])[0].tokens


def test_other_programs_are_compared_with_whole_translations() -> None:
    translator = tiny_translator()
    plain = replace(translator, search=replace(translator.search, **PLAIN))
    # A source that is longer than those of the training text.
    splitting = replace(translator, limits=SourceLimits(usual=2))

    def translate(texts: Sequence[str]) -> list[str]:
        return [translation.text for translation in plain.translate(texts)]

    assert splitting.translate([PAIRS[0][0]])[0].parts > 1
    assert compare_texts(splitting, PLAIN, translate, REFERENCED, RAW)["equal"] == 1


def test_agreement_ends_at_the_first_difference() -> None:
    for expected, found, fraction in (
        (["ab"], ["ab"], 1.0),
        (["ab"], ["ax"], 1 / 3),
        (["a"], ["ab"], 1 / 2),
        (["ab", ""], ["x", ""], 1 / 4),
        ([], [], 1.0),
    ):
        assert agreement(expected, found) == pytest.approx(fraction)


def test_an_export_agrees_and_a_stranger_does_not(tmp_path: Path) -> None:
    translator = tiny_translator()
    write_ctranslate2(translator.model, translator.tokenizer, tmp_path)
    same = verify_ctranslate2(translator, tmp_path, REFERENCED, RAW)
    assert (same["agreement"], same["sentences"]) == (1, len(REFERENCED))
    assert same["bleu"] == same["bleu_exported"]
    assert same["speed_up"] > 0
    searching = {"algorithm": "diverse", "beam_size": 4, "groups": 2, "min_length": 9}
    found = verify_ctranslate2(tiny_translator(**searching), tmp_path, REFERENCED, RAW)
    assert found | {"speed_up": same["speed_up"]} == same
    other = tiny_translator(encoder_layers=1, decoder_layers=1)
    assert verify_ctranslate2(other, tmp_path, REFERENCED, RAW)["agreement"] < 1
    # A sentence that we would cut is not compared.
    short = tiny_translator(max_length=12)
    long = ("a dog runs . " * 9, ("ein hund .",))
    assert verify_ctranslate2(short, tmp_path, [long, *REFERENCED[:1]], RAW)["sentences"] == 1
    with pytest.raises(InputError, match="11 subwords"):
        verify_ctranslate2(short, tmp_path, [long], RAW)


def test_a_type_without_support_is_verified_in_another(tmp_path: Path) -> None:
    translator = tiny_translator()
    write_ctranslate2(translator.model, translator.tokenizer, tmp_path, "bfloat16")
    verified = verify_ctranslate2(translator, tmp_path, REFERENCED, RAW)
    assert verified["agreement"] > 0.5
    assert verified["computed_in"] in ctranslate2.get_supported_compute_types("cpu")


def test_a_package_of_argos_translates_alike(tmp_path: Path) -> None:
    # The engine ends a translation at 256 subwords, whatever model.max_length is.
    translator = willing(max_length=300)
    with torch.no_grad():
        # So probable that an empty text would often be the best; Argos has none.
        translator.model.projection.weight[EOS, 0] = 0.5
    data = DataConfig(source="en", target="de")
    file = write_argos(translator, data, tmp_path, "float32")
    pairs = [(text, (text,)) for text in TEXTS if text.strip()]
    verified = verify_argos(translator, file, pairs, RAW)
    assert (verified["equal"], verified["sentences"]) == (1, len(pairs))
    assert verified["bleu"] == verified["bleu_exported"]
    assert verified["search"] == "beam (beam size 4), up to 256 tokens"
    # Nor does Argos cut a source at model.max_length.
    assert len(translate_as_argos(file, ["a " * 1100])) == 1
    for lengths in ({}, {"max_length": 1024, "max_source_length": 300}):
        with pytest.raises(InputError, match=r"model\.max_length=1024 for each side"):
            write_argos(willing(positions="learned", **lengths), data, tmp_path, "float32")


def test_the_program_of_a_card_translates_in_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig("bpe", 310, False, 0.0, 1.0, 1000), lambda: PAIRS)
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        tie_embeddings="none",
    )
    greedy = search_config(algorithm="greedy", beam_size=1, max_length_offset=256)
    let_end(model)
    ours = Translator(model, tokenizer, greedy, 200)
    write_ctranslate2(model, tokenizer, tmp_path)
    write_settings(tokenizer, run_of(model.config), tmp_path / "transformer.json")
    run = RunConfig(data=DataConfig("files", "en", "de"), decoding=greedy)
    card = model_card(tokenizer, run, {}, "ctranslate2", Published("mit"))
    [program] = re.findall(r"```python\n(.*?)```", card, re.S)
    monkeypatch.chdir(tmp_path)
    for text in TEXTS[:3]:
        exec(program.replace("…", text), {})
        assert capsys.readouterr().out == f"{ours.translate([text])[0].text}\n"
