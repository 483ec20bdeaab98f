"""Compiled layers and losses: whole graphs, few of them, and the numbers of the plain form."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from tests.helpers.runs.processes import FORKS, exit_code
from tests.helpers.training.losses import loss_config
from tests.helpers.training.updates import translation_module
from transformer.data.batching.batch import Batch, collate
from transformer.model.transformer import Transformer
from transformer.training.losses.config import LossConfig
from transformer.training.losses.consistency import consistency_loss
from transformer.training.losses.cross_entropy import loss_function
from transformer.training.optimization.activation_checkpointing import recompute_layers
from transformer.training.optimization.compiled_layers import compile_layers

pytestmark = pytest.mark.thorough

R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}


def pairs(sentences: int, source: int, target: int) -> Batch:
    """Random pairs, the first as long as asked for, EOS and BOS included, the others shorter."""
    random = np.random.default_rng(sentences)

    def side(longest: int) -> list[np.ndarray]:
        lengths = [longest - 1, *random.integers(0, longest, sentences - 1)]
        return [random.integers(4, 24, length) for length in lengths]

    return collate(side(source), side(target))


def compile_losses(backend: Any) -> None:
    """Compile the losses of this process by this backend."""
    torch.compile = partial(torch.compile, fullgraph=True, backend=backend)


def learn(model: Transformer, batch: Batch, narrow: bool) -> dict[str, Any]:
    """Hidden states and all gradients, in autocast if ``narrow``."""
    with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        hidden = model(batch.source, batch.target_input)
    (hidden * torch.linspace(-1, 1, hidden.size(-1))).sum().backward()
    return {"hidden": hidden.detach(), **{n: w.grad for n, w in model.named_parameters()}}


def layers_equal_the_plain_ones() -> None:
    options: list[dict[str, Any]] = [
        {"positions": "alibi", "convolution_window": 3, "norm_order": "post"},
        {"positions": "rotary", "num_kv_heads": 2, "norm": "rms", "activation": "swiglu"},
    ]
    for number, changes in enumerate(options):
        changes |= {"encoder_layers": 1, "decoder_layers": 1}
        plain, other = (tiny_transformer(**changes).train() for _ in range(2))
        if number == 0:
            recompute_layers(other)
        compile_layers(other, fullgraph=True, backend="eager")
        batch, narrow = pairs(3, 9, 7), number == 1
        mine, expected = (learn(each, batch, narrow) for each in (other, plain))
        for name, value in expected.items():
            if not narrow:
                torch.testing.assert_close(mine[name], value, rtol=1e-4, atol=1e-4)
            elif not name.endswith("key.bias"):
                assert (mine[name] - value).norm() / value.norm() < 0.05, name


def losses_equal_the_plain_ones() -> None:
    compile_losses("aot_eager")
    torch.manual_seed(1)
    hidden = torch.randn(2, 23, 8, requires_grad=True)
    weight, target = torch.randn(31, 8, requires_grad=True), torch.randint(0, 31, (23,))

    def both(config: LossConfig, compiled: bool) -> list[Tensor]:
        one = loss_function(config, hidden[0], weight, target, compiled=compiled)
        two, *parts = consistency_loss(config, hidden, weight, target, compiled=compiled)
        grads = torch.autograd.grad(one * 0.7, (hidden, weight))
        grads += torch.autograd.grad(two * 0.7, (hidden, weight))
        return [one, two, *parts, *grads]

    for narrow in (False, True):
        config = loss_config(chunk=10, bfloat16=narrow, **R_DROP)
        for mine, expected in zip(both(config, True), both(config, False), strict=True):
            assert mine.dtype == torch.float32
            if narrow:
                assert (mine - expected).norm() / expected.norm() < 5e-3
            else:
                assert_close(mine, expected)


def graphs_are_few() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    # The width, 16, is also a length and a number of sentences.
    model = tiny_transformer(encoder_layers=2, decoder_layers=2, dropout=0.1)
    module = translation_module(model, loss=loss_config(chunk=32))
    compile_layers(module.model, fullgraph=True, backend=backend)
    compile_losses(backend)
    module.train().compiled = True
    random = np.random.default_rng(1)
    shapes = [(16, 16, 16), (7, 9, 24), (4, 8, 8), (1, 9, 11), (5, 1, 6), (5, 6, 1), (1, 1, 1)]
    shapes += [tuple(random.integers(1, 40, 3)) for _ in range(8)]
    for batch in (pairs(*shape) for shape in shapes):
        module.micro_loss(batch)[0].backward()
    first = len(graphs)
    module.eval()
    with torch.no_grad():
        for batch in (pairs(*shape) for shape in shapes):
            module.predictions(batch)
    # Encoder layer, decoder layer and loss of several sentences or tokens, and of one; the layers
    # again without gradient.
    assert (first, len(graphs)) == (6, 10)
    assert len(graphs) - 3 <= 8


@pytest.mark.parametrize(
    "check", [layers_equal_the_plain_ones, losses_equal_the_plain_ones, graphs_are_few]
)
def test_compiled_in_a_fork(check: Callable[[], None]) -> None:
    # The checks of shapes that tests have cannot be traced; a fork has none, as users.
    process = FORKS.Process(target=check)
    process.start()
    assert exit_code(process) == 0
