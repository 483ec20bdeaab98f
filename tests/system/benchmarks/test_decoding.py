"""The benchmark of decoding measures equal work, and says so in its last line."""

import pytest
import torch

from benchmarks.decoding.speed import ENGINES, measure, summary
from benchmarks.support.translation_models import Subject
from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.settings.tokenizer import EOS

pytestmark = pytest.mark.thorough

PROMISED = [
    "ours_beam5_float32",
    "hf_beam5_float32",
    "ct2_beam5_float32",
    "ct2_beam5_int8",
    "ratio_hf",
    "ratio_ct2",
]


def subject() -> Subject:
    """Translations end by themselves: what the limit of length cuts may differ."""
    translator = tiny_translator(
        norm_order="post",
        beam_size=5,
        length_penalty=1.0,
        length_penalty_form="average",
        max_length_offset=12,
        min_length=3,
        stopping="full",
    )
    model = translator.model
    with torch.no_grad():
        for weight in (*model.encoder.layers.parameters(), *model.decoder.layers.parameters()):
            if weight.dim() == 2:
                weight.mul_(3)
        # Last before the projection, which has no bias.
        model.decoder.layers[-1].feed_forward_residual.norm.bias.copy_(
            6 * model.projection.weight[EOS]
        )
    sources = translator.tokenizer.encode_source([source for source, _ in PAIRS])
    return Subject(
        "tiny",
        translator.model.eval(),
        translator.tokenizer,
        sources,
        [target for _, target in PAIRS],
        RAW,
        translator.search,
    )


def test_all_engines_say_the_same() -> None:
    results = measure(subject(), threads=1, repeats=1, tried=2)
    same = {result.engine.key: result.same for result in results}
    exact = [f"{engine}_{search}_float32" for engine in ENGINES for search in ("greedy", "beam5")]
    # CTranslate2 does not always return the hypothesis of its beam that scores best.
    exact.remove("ct2_beam5_float32")
    assert [same[key] for key in exact] == [1] * 5
    values = summary(results, results, beam=5)
    assert list(values)[: len(PROMISED)] == PROMISED
    assert all(value > 0 for value in values.values())
