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
from tests.helpers.training.updates import loss_config, translation_module
from transformer.data.batching.batch import Batch, collate
from transformer.model.transformer import Transformer
from transformer.settings.training import LossConfig, OptimizerConfig
from transformer.training.layer_wrappers import compile_layers, recompute_layers
from transformer.training.losses.cross_entropy import loss_function
from transformer.training.losses.r_drop import r_drop_loss
from transformer.training.optimization import build_optimizer

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
        two, *parts = r_drop_loss(config, hidden, weight, target, compiled=compiled)
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
    # Encoder layer, decoder layer and loss; what is single or without gradient is not compiled.
    assert (first, len(graphs)) == (3, 3)


def losses_stay_equal() -> None:
    """Over 200 updates with all that torch.compile has for a CPU, without dropout."""
    modules = [translation_module(tiny_transformer(), loss=loss_config(chunk=32)) for _ in range(2)]
    modules[1].compiled = True
    compile_layers(modules[1].model)
    batches = [pairs(size, size + 3, size + 1) for size in (4, 7, 11)]
    losses: list[list[float]] = []
    for module in modules:
        # A higher rate amplifies the last bits: 2e-3 after 190 updates at 1e-3.
        adam = build_optimizer(OptimizerConfig(lr=3e-4), module.train())
        losses.append([])
        for number in range(200):
            loss, tokens, _ = module.micro_loss(batches[number % 3])
            loss.backward()
            module.normalize(tokens, adam)
            adam.step()
            adam.zero_grad()
            losses[-1].append(float(loss.detach()) / tokens)
    plain, compiled = torch.tensor(losses)
    assert (plain - compiled).abs().max() < 1e-3
    assert plain[-3:].mean() < plain[:3].mean() - 0.2


@pytest.mark.parametrize(
    "check",
    [
        layers_equal_the_plain_ones,
        losses_equal_the_plain_ones,
        graphs_are_few,
        losses_stay_equal,
    ],
)
def test_compiled_in_a_fork(check: Callable[[], None]) -> None:
    # The checks of shapes that tests have cannot be traced; a fork has none, as users.
    process = FORKS.Process(target=check)
    process.start()
    assert exit_code(process) == 0
