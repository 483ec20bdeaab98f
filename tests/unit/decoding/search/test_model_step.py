"""The step of a model: compiled, and on a device that has no data."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import backend_registration

from tests.helpers.decoding.steps import search_config
from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.runs.processes import exit_code
from tests.helpers.suite.fork_server import FORKS
from transformer.common.errors import InputError
from transformer.decoding.batched_search import search_batch
from transformer.decoding.search import model_step
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.ensemble import Ensemble
from transformer.decoding.search.model_step import ModelStep, next_log_probabilities
from transformer.model.attention import kv_cache
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


def compiled_steps_are_two_graphs() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    plain = {"decoder_layers": 1}
    rotary = plain | {
        "positions": "rotary",
        "num_kv_heads": 2,
        "norm": "rms",
        "activation": "swiglu",
    }
    relative = {"positions": "relative", "pattern": "bigbird", "share_layers": "all"}
    options: list[tuple[bool, dict[str, Any]]] = [
        (False, plain),
        (True, rotary),
        (True, relative),
    ]
    for repeated, changes in options:
        kv_cache.repeats_shapes = lambda device, repeated=repeated: repeated
        torch._dynamo.reset()
        graphs.clear()
        compiled = torch.compile(
            next_log_probabilities, backend=backend, dynamic=True, fullgraph=True
        )
        model_step.compiled_step = lambda compiled=compiled: compiled
        model = tiny_transformer(seed=3, max_length=100, **changes)
        with torch.inference_mode():
            model.projection.weight.mul_(4)
            for sentences, limit in ((6, 24), (3, 34)):
                source = torch.randint(4, 24, (sentences, 10 + limit))
                limits = torch.arange(sentences) + limit - 10
                config = search_config(min_length=14)
                expected = beam_search(ModelStep(model, source, 3), limits, config)
                found = beam_search(ModelStep(model, source, 3, compiled=True), limits, config)
                assert [h.tokens for [h] in found] == [h.tokens for [h] in expected]
        # One sentence, or more.
        assert 1 <= len(graphs) <= 2, graphs


@pytest.mark.parametrize("check", [searches_mix_no_devices, compiled_steps_are_two_graphs])
def test_searches_without_data_and_compiled(check: Callable[[], None]) -> None:
    # A fork has no checks of shapes, which cannot be traced, and takes the device with it.
    process = FORKS.Process(target=check)
    process.start()
    assert exit_code(process) == 0


def test_a_step_that_cannot_be_compiled_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> Tensor:
        raise Unsupported("no compiler\nand much more", "GB0000")

    monkeypatch.setattr(model_step, "compiled_step", lambda: fails)
    step = ModelStep(tiny_transformer(), torch.full((2, 5), 5), 1, compiled=True)
    step(torch.full((2, 1), 2))
    with pytest.raises(InputError, match=r"\(no compiler\); set decoding.compile=false$"):
        step(torch.full((2, 1), 4))
