"""CTranslate2 says what our model says, or the model is refused by name."""

from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.architecture import nearest_architecture
from transformer.interchange.ctranslate2 import write_ctranslate2
from transformer.interchange.format_limits import (
    CTRANSLATE2,
    TRANSFORMERS,
    Values,
    check_expressible,
)
from transformer.settings.tokenizer import EOS

TEXTS = [source for source, _ in PAIRS] * 2 + ["a", "the dog " * 6]


def said_by_ctranslate2(folder: Path, sources: list[list[str]], beam: int) -> list[list[str]]:
    engine = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)
    found = engine.translate_batch(
        sources, beam_size=beam, max_decoding_length=30, length_penalty=0.0
    )
    return [result.hypotheses[0] for result in found]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_order": "post"},
        {"positions": "learned", "max_length": 64},
        {"positions": "rotary"},
        {"positions": "rotary", "num_kv_heads": 2, "norm": "rms", "activation": "swiglu"},
        {"num_kv_heads": 1, "activation": "gelu"},
        {"head_dim": 8, "activation": "geglu"},
        {"norm": "rms", "norm_order": "post", "share_layers": "all"},
        {"encoder_layers": 3, "decoder_layers": 1, "tie_embeddings": "none"},
    ],
    ids=str,
)
def test_greedy_translations_are_equal(changes: dict[str, Any], tmp_path: Path) -> None:
    translator = tiny_translator(algorithm="greedy", beam_size=1, max_length_offset=30, **changes)
    tokenizer = translator.tokenizer
    write_ctranslate2(translator.model, tokenizer, tmp_path)
    sources = [tokenizer.source_subwords(subwords) for subwords in tokenizer.encode_source(TEXTS)]
    found = said_by_ctranslate2(tmp_path, sources, beam=1)
    expected = [list(translation.tokens)[:30] for translation in translator.translate(TEXTS)]
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
    found = said_by_ctranslate2(tmp_path, sources, beam=1)
    expected = [list(translation.tokens)[:30] for translation in translator.translate(texts)]
    assert [tokens[:30] for tokens in found] == expected
    assert not {"<2 de>", "<2 fr>", "<tag web>"} & {subword for row in found for subword in row}


@pytest.mark.parametrize(
    ("changes", "has", "says"),
    [
        ({"norm_order": "sandwich"}, CTRANSLATE2, "pre or post; .* export with format=safetensors"),
        ({"decoder_pattern": "longformer"}, CTRANSLATE2, "full or null; .*decoder_pattern=full"),
        ({"convolution_window": 3}, CTRANSLATE2, "null; train with model.convolution_window=null"),
        ({"num_kv_heads": 2}, TRANSFORMERS, "null; .* with format=ctranslate2 or safetensors"),
    ],
    ids=str,
)
def test_a_model_that_a_program_does_not_have_is_refused(
    changes: dict[str, Any], has: Values, says: str
) -> None:
    [(name, value)] = changes.items()
    message = f"model.{name}={value} cannot be expressed in it, only {says}"
    with pytest.raises(InputError, match=message):
        check_expressible(tiny_translator(**changes).model.config, "it", has)


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
    assert nearest_architecture(tiny_translator(**changes).model.config).model_type == kind
