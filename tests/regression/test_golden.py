"""A golden loss curve: a change that is meant to change nothing leaves these numbers alone.

Twenty updates of a tiny model on sentences to be reversed: initialization, dropout, both stacks,
the fused loss, the optimizer and the schedule all have a part in them. Who changes one of these on
purpose prints the new curve with ``python -m tests.regression.test_golden``.
"""

import numpy as np
import pytest
import torch

from tests.helpers.model.models import tiny_config
from tests.helpers.training.updates import loss_config
from transformer.data.batching.batch import Batch, collate
from transformer.model.build import build_transformer
from transformer.settings.training import OptimizerConfig, ScheduleConfig
from transformer.training.losses.cross_entropy import loss_function
from transformer.training.optimization import build_optimizer, build_schedule

# fmt: off
GOLDEN = {
    "pre": [
        4.09459, 3.68814, 3.409692, 3.270671, 3.165017, 3.08551, 3.021034,
        3.038677, 2.917055, 3.089402, 2.992045, 3.035815, 3.002173, 2.985954,
        2.947994, 3.003932, 2.888809, 2.867082, 2.935146, 2.927174,
    ],
    "post": [
        3.983143, 3.571601, 3.295557, 3.22262, 3.139616, 3.086389, 3.004802,
        3.004991, 2.989807, 3.114643, 3.10693, 3.03031, 3.042855, 3.003184,
        2.960018, 3.030947, 2.957929, 2.875733, 2.985992, 2.992655,
    ],
    "muon": [
        4.09459, 3.792281, 3.657022, 3.4806, 3.314594, 3.231036, 3.117985,
        3.181024, 2.971048, 3.153779, 2.992937, 3.025843, 2.993757, 2.957355,
        2.931924, 3.019592, 2.909904, 2.8992, 2.95298, 2.949786,
    ],
}
# fmt: on


def batches() -> list[Batch]:
    """Random sentences and their reversals; NumPy's legacy generator never changes."""
    draw = np.random.RandomState(1)
    made = []
    for _ in range(20):
        sources = [draw.randint(4, 24, size=draw.randint(1, 9)).tolist() for _ in range(16)]
        made.append(collate(sources, [source[::-1] for source in sources]))
    return made


def curve(name: str) -> list[float]:
    """Smoothed loss per target token, before each update; Adam has both orders of norms."""
    torch.manual_seed(1)
    norm_order = "pre" if name == "muon" else name
    model = build_transformer(tiny_config(norm_order=norm_order, dropout=0.1)).train()
    config = OptimizerConfig(
        "muon" if name == "muon" else "adam",
        lr=0.02,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=0.0,
        momentum=0.95,
        bfloat16=False,
    )
    optimizer = build_optimizer(config, model)
    schedule = build_schedule(ScheduleConfig("inverse_sqrt", warmup=5), optimizer, 16)
    losses = []
    for batch in batches():
        hidden = model(batch.source, batch.target_input)
        real = batch.target_output != 0
        loss = loss_function(
            loss_config(chunk=32),
            hidden[real],
            model.projection.weight,
            batch.target_output[real],
        )
        mean = loss / batch.target_tokens
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(mean.item())
    return losses


@pytest.mark.parametrize("name", GOLDEN)
def test_the_curve_is_the_one_it_was(name: str) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the order of a sum is part of its rounding
    try:
        assert curve(name) == pytest.approx(GOLDEN[name], rel=1e-4)
    finally:
        torch.set_num_threads(before)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in GOLDEN:
        print(name, [round(loss, 6) for loss in curve(name)])
