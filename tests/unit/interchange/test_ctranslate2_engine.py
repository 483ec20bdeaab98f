"""CTranslate2 behind our translator says what our own search says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from tests.helpers.model.models import run_of
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.fingerprint import write_fingerprint
from transformer.decoding.search.shortlist import ENGINE_FILE, Shortlist
from transformer.decoding.translator import Translator
from transformer.interchange.ctranslate2 import (
    read_ctranslate2,
    vocabulary_map,
    write_ctranslate2,
)
from transformer.interchange.ctranslate2_engine import CTranslate2Engine
from transformer.interchange.safetensors import write_settings
from transformer.model.head_masks import HeadName, switch_off
from transformer.model.transformer import Transformer
from transformer.settings.tokenizer import BOS, EOS, PAD

TEXTS = [source for source, _ in PAIRS] + [PAIRS[0][0], "a", "", "  ", "the dog " * 6]


def exported(translator: Translator, folder: Path) -> Translator:
    """One that asks the engine, beside the one that asks the model."""
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
        # The first component of what is projected is 10, whatever was said.
        model.decoder.final_norm.weight[0], model.decoder.final_norm.bias[0] = 0, 10
        model.projection.weight[:, 0] = 0
        model.projection.weight[[PAD, BOS], 0] = -10
        model.projection.weight[EOS, 0] = 0.2


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "greedy", "beam_size": 1},
        {"algorithm": "greedy", "beam_size": 1, "length_penalty": 1.0},
        {"beam_size": 3, "length_penalty": 1.0, "nbest": 2},
        {"beam_size": 3, "length_penalty": 0.6, "length_penalty_form": "average"},
        {"beam_size": 5, "length_penalty": -0.5, "nbest": 5, "max_length_offset": 40},
        {"beam_size": 3, "max_length_ratio": 0.5, "max_length_offset": 1, "nbest": 3},
        {"beam_size": 3, "positions": "learned", "max_length": 14, "max_length_offset": 40},
        {"beam_size": 3, "max_length_ratio": 2.0, "max_length_offset": 1, "batch_tokens": 1},
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


def test_an_export_alone_translates_as_with_its_model(tmp_path: Path) -> None:
    ours = willing(beam_size=3, nbest=2, max_length_ratio=0.5, max_length_offset=1)
    theirs = exported(ours, tmp_path)
    write_settings(ours.tokenizer, run_of(ours.model.config), tmp_path / "transformer.json")
    (tmp_path / "moved").mkdir()
    for file in tmp_path.glob("*.*"):
        file.rename(tmp_path / "moved" / file.name)
    checkpoint = read_ctranslate2(tmp_path / "moved")
    tokenizer = Tokenizer.from_state(checkpoint.portable.tokenizer)
    engine = CTranslate2Engine(tmp_path / "moved", torch.device("cpu"))
    alone = Translator(checkpoint.model.to("meta"), tokenizer, ours.search, 200, engine=engine)
    limits = [ours.search.limit(len(row)) for row in ours.tokenizer.encode_source(TEXTS)]
    for expected, found, limit in zip(
        theirs.translate(TEXTS), alone.translate(TEXTS), limits, strict=True
    ):
        # At its longest length the engine lets any piece end it.
        assert found.tokens == expected.tokens or len(found.tokens) == limit
        assert len(found.nbest) == len(expected.nbest)
    with pytest.raises(InputError, match="an export alone has no prefix, must or never"):
        alone.translate(["a dog"], [Constraints(never=("dog",))])


def test_a_search_that_the_engine_cannot_do_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exported(willing(beam_size=3, stopping="exact"), tmp_path)
    assert "engine=ctranslate2 stops with a full beam" in caplog.text
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
    with pytest.raises(InputError, match=f"{tmp_path} cannot be read: "):
        CTranslate2Engine(tmp_path)(ours)
    with torch.no_grad():
        ours.model.encoder.layers[0].attention.query.bias[0] += 1e-3
    with pytest.raises(InputError, match="not exported from this checkpoint as it is now"):
        CTranslate2Engine(tmp_path)(ours)


def test_heads_that_are_off_are_off_in_the_export(tmp_path: Path) -> None:
    ours = willing(beam_size=2)
    before = [translation.tokens for translation in ours.translate(TEXTS)]
    switch_off(ours.model, [HeadName("cross", 1, 0), HeadName("decoder", 0, 2)])
    expected = [translation.tokens for translation in ours.translate(TEXTS)]
    assert expected != before
    engine = exported(ours, tmp_path)
    assert [translation.tokens for translation in engine.translate(TEXTS)] == expected


@pytest.mark.parametrize(
    "changes", [{"algorithm": "greedy", "beam_size": 1}, {"beam_size": 3, "nbest": 2}], ids=str
)
def test_a_shortlist_is_that_of_our_search(changes: dict[str, Any], tmp_path: Path) -> None:
    ours = willing(**changes)
    tokenizer = ours.tokenizer
    generator = np.random.default_rng(2)
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    candidates = torch.from_numpy(generator.integers(sizes[1], size=(sizes[0], 3)))
    shortlist = Shortlist(torch.arange(6), candidates)
    shortlist.save(tmp_path / "short.npz", tokenizer)
    search = replace(ours.search, shortlist=str(tmp_path / "short.npz"))
    with pytest.raises(InputError, match=r"vmap\.txt is missing"):
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
