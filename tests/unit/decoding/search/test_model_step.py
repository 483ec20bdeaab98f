"""A search on a device that has no data."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import backend_registration

from tests.helpers.decoding.steps import search_config
from tests.helpers.model.models import tiny_config
from tests.helpers.runs.processes import FORKS, exit_code
from transformer.decoding.batched_search import search_batch
from transformer.decoding.search.model_step import Ensemble
from transformer.model.build import build_transformer
from transformer.model.transformer import Transformer

pytestmark = pytest.mark.thorough

LIMIT = 20
FAKE = "fake"


class FakeHost:
    """Reads tensors that have no data: half of the sentences end at every other step, or all two.

    The one of one sentence would have data: torch folds constants of one element.
    """

    def __init__(self, model: Transformer) -> None:
        self.steps = 0
        model.decoder.register_forward_pre_hook(self.count)

    def count(self, *inputs: object) -> None:
        self.steps += 1

    def tolist(self, tensor: Tensor) -> Any:
        """The limits first, then the outcomes of the steps."""
        assert tensor.device.type == FAKE
        values = np.full(tensor.shape, 0 if self.steps else LIMIT)
        if self.steps and self.steps % 2 == 0:
            values[len(values) // 2 if len(values) > 2 else 0 :] = 1
        return values.tolist()


def searches_mix_no_devices() -> None:
    # A device of Python, whose tensors can be cut, which those of CUDA need a build with CUDA for.
    backend_registration._setup_privateuseone_for_python_backend(FAKE)
    sampling = {"algorithm": "sampling", "nbest": 3, "top_k": 9, "top_p": 0.9, "min_p": 0.1}
    searches: list[tuple[str, dict[str, Any]]] = [
        ("rotary", {"algorithm": "greedy", "beam_size": 1}),
        ("sinusoidal", {"nbest": 2, "stopping": "full"}),
        ("relative", {"no_repeat_ngram": 2, "eos_threshold": 1.5, "min_length": 3}),
        ("rotary", {"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.5}),
        ("relative", sampling),
    ]
    for positions, search in searches:
        with FakeTensorMode(), torch.inference_mode():
            with torch.device(FAKE):
                model = build_transformer(tiny_config(positions=positions)).eval()
            for whole in (model, Ensemble([model, model])):
                host = FakeHost(model)
                with mock.patch.object(FakeTensor, "tolist", lambda x, h=host: h.tolist(x)):
                    config = search_config(**search)
                    search_batch(whole, [[5, 6, 7]] * 8, config, None, banned=[7, 8])
                # There are 8, 4 and 2 sentences.
                assert host.steps == 6


def test_searches_without_data() -> None:
    # A fork has no checks of shapes, which cannot be traced, and takes the device with it.
    process = FORKS.Process(target=searches_mix_no_devices)
    process.start()
    assert exit_code(process) == 0
