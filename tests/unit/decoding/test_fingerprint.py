"""A fingerprint changes with whatever changes what the model says."""

import pytest
import torch

from tests.helpers.decoding.translators import tiny_translator
from transformer.data.tokenization.tags import SourceTags, Tags
from transformer.decoding.fingerprint import compute_fingerprint
from transformer.model.head_masks import HeadName, switch_off
from transformer.model.layers.quantization import in_precision
from transformer.settings.model import Precision


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_weights_of_any_precision_and_heads_count(precision: Precision) -> None:
    found = []
    for change in (0.0, 0.0, 0.5):
        translator = tiny_translator()
        with torch.no_grad():
            translator.model.decoder.layers[0].cross_attention.value.weight[3, 5] += change
        model = in_precision(translator.model, precision)
        found.append(compute_fingerprint(model, translator.tokenizer))
    assert found[0] == found[1] != found[2]
    translator = tiny_translator()
    switch_off(translator.model, [HeadName("cross", 1, 2)])
    model = in_precision(translator.model, precision)
    assert compute_fingerprint(model, translator.tokenizer) not in found


def test_fingerprint_ignores_the_tags_of_a_call() -> None:
    translator = tiny_translator()
    tokenizer = translator.tokenizer.with_tags(Tags(targets=("de", "fr")))
    before = compute_fingerprint(translator.model, tokenizer)
    assert before != compute_fingerprint(translator.model, translator.tokenizer)
    for code in ("de", "fr"):
        tagged = tokenizer.tagged(SourceTags(code))
        assert compute_fingerprint(translator.model, tagged) == before
