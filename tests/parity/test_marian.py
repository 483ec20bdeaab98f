"""The twin of the benchmarks is Hugging Face's Marian with our weights."""

import pytest
import torch

from benchmarks.support.marian_twin import marian
from tests.helpers.model.huggingface_twins import spread
from tests.helpers.model.models import tiny_transformer
from transformer.settings.tokenizer import PAD

pytestmark = pytest.mark.thorough


def test_the_twin_computes_the_same_logits() -> None:
    model = tiny_transformer(norm_order="post")
    spread(model, 1)
    source = torch.randint(4, 24, (3, 7), generator=torch.Generator().manual_seed(1))
    source[1, 4:] = PAD
    target = torch.randint(4, 24, (3, 9), generator=torch.Generator().manual_seed(2))
    logits = marian(model)(source, (source != PAD).long(), target).logits
    torch.testing.assert_close(logits, model.logits(model(source, target)), rtol=0, atol=1e-5)
