"""Ensembles average distributions in a search and in scoring; a search on a device without data."""

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import backend_registration

from tests.helpers.decoding.steps import search_config
from tests.helpers.model.models import tiny_config, tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.runs.processes import FORKS, exit_code
from transformer.decoding.batched_search import search_batch
from transformer.decoding.forced_decoding import score_subwords
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.model_step import Averaging, Ensemble, ModelStep, build_step
from transformer.model.build import build_transformer
from transformer.model.transformer import Transformer

SOURCES = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0], [10, 11, 12, 3, 0]])
SEGMENTS = [[4, 5, 6, 7], [8, 9], [10, 11, 12]]
LIMITS = torch.tensor([9, 7, 8])


def sharp(seed: int, **changes: object) -> Transformer:
    model = tiny_transformer(seed=seed, **changes)
    with torch.no_grad():
        model.projection.weight.mul_(4)
    return model


@torch.inference_mode()
def test_arithmetic_and_geometric_mean() -> None:
    first, second = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.1, 0.8])
    logs = [first.log(), second.log()]
    models = [tiny_transformer(1), tiny_transformer(2)]
    assert_close(Ensemble(models).combine(logs).exp(), (first + second) / 2)
    geometric = (first * second).sqrt()
    found = Ensemble(models, "log_probability").combine(logs).exp()
    assert_close(found, geometric / geometric.sum())


@pytest.mark.parametrize("averaging", ["probability", "log_probability"])
@torch.inference_mode()
def test_an_ensemble_of_a_model_with_itself_is_the_model(averaging: Averaging) -> None:
    model = sharp(1)
    config = search_config(nbest=3)
    alone = beam_search(ModelStep(model, SOURCES, 3), LIMITS, config)
    twice = beam_search(build_step(Ensemble([model, model], averaging), SOURCES, 3), LIMITS, config)
    for expected, found in zip(alone, twice, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-4)


@pytest.mark.parametrize("averaging", ["probability", "log_probability"])
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_scoring_gives_the_log_probability_of_the_search(averaging: Averaging, beam: int) -> None:
    ensemble = Ensemble([sharp(1), sharp(2, encoder_layers=1, d_model=32), sharp(3)], averaging)
    config = search_config(beam_size=beam)
    search = greedy_search if beam == 1 else beam_search
    found = [best for best, *_ in search(build_step(ensemble, SOURCES, beam), LIMITS, config)]
    pairs = [(s, list(h.tokens)) for s, h in zip(SEGMENTS, found, strict=True)]
    # At its limit a sentence ends, however improbable that is: its score counts it all the same.
    scores = [math.fsum(row) for row in score_subwords(ensemble, pairs)]
    assert scores == pytest.approx([h.log_probability for h in found], abs=1e-4)
    # No single model gives it.
    assert math.fsum(score_subwords(ensemble.members[0], pairs)[0]) != pytest.approx(
        scores[0], 1e-3
    )


def test_an_ensemble_has_the_shortest_length() -> None:
    long, short = (tiny_transformer(max_length=m, positions="learned") for m in (64, 32))
    ensemble = Ensemble([long, short])
    assert ensemble.config.max_length == ensemble.max_length == 32
    assert Ensemble([tiny_transformer()]).max_length is None


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


def search_on_a_fake_device() -> None:
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


@pytest.mark.thorough
def test_searches_mix_no_devices() -> None:
    # A fork has no checks of shapes, which cannot be traced, and takes the device with it.
    process = FORKS.Process(target=search_on_a_fake_device)
    process.start()
    assert exit_code(process) == 0
