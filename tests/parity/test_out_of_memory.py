"""One process without enough memory computes the same gradient; one of two ranks ends the run.

The double below has no memory for more than some rows: forward, or half way back, when the gradient
of the layers above has already been added, and other ranks wait for it.
"""

import multiprocessing
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.helpers.model.models import tiny_transformer
from tests.helpers.training.updates import loss_config, module_settings, quiet_trainer
from transformer.common.errors import InputError
from transformer.data.batching.batch import Batch, collate
from transformer.data.batching.loader import Update
from transformer.tasks.translation import TranslationModule
from transformer.training.distributed.ddp import replicated_strategy
from transformer.training.update import Accumulator

TIMEOUT = 120
ROWS = [
    ([4 + (3 * row + index) % 9 for index in range(1 + row % 5)], [5 + row % 7] * (1 + row % 3))
    for row in range(28)
]
BATCHES = [collate(*zip(*ROWS[start : start + 7], strict=True)) for start in (0, 7, 14, 21)]  # type: ignore[arg-type]


class Poor(TranslationModule):
    """Has no memory for more than ``most`` rows on one rank; None: for all."""

    def __init__(
        self, file: Path, most: int | None, where: Literal["forward", "backward"], **loss: Any
    ) -> None:
        model = tiny_transformer(norm_order="post")
        super().__init__(**module_settings(model, loss=loss_config(chunk=3, **loss)))
        self.file, self.most, self.where = file, most, where

    def train_dataloader(self) -> "TwoUpdates":
        return TwoUpdates(self.trainer.global_rank, self.trainer.world_size)

    def micro_loss(self, batch: Batch) -> tuple[Tensor, int, dict[str, Tensor]]:
        last = self.trainer.global_rank == self.trainer.world_size - 1
        if not last or self.most is None or batch.size <= self.most:
            return super().micro_loss(batch)
        if self.where == "forward":
            raise torch.OutOfMemoryError("a double's")
        handle = self.model.encoder.register_forward_hook(_fails_on_the_way_back)
        try:
            return super().micro_loss(batch)
        finally:
            handle.remove()

    def normalize(self, tokens: float | Tensor, adam: Optimizer) -> Tensor:
        norm = super().normalize(tokens, adam)
        if self.trainer.is_global_zero:
            gradients = {n: p.grad for n, p in self.model.named_parameters()}
            torch.save([tokens, gradients], self.file.with_suffix(f".{self.global_step}"))
        return norm


def _fails_on_the_way_back(module: Any, arguments: Any, output: Any) -> None:
    def fail(gradient: Tensor) -> None:
        raise torch.OutOfMemoryError("a double's")

    hidden = output if isinstance(output, Tensor) else output[0]
    hidden.register_hook(fail)


class TwoUpdates:
    """Two updates, of half the micro-batches for each of two ranks."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.mine = BATCHES[rank::ranks]

    def __iter__(self) -> Iterator[Update[Batch]]:
        for start in range(2):
            yield Update.of(self.mine, list(range(10 * start, 10 * start + len(self.mine))))


def _train(
    file: Path,
    most: int | None,
    where: Literal["forward", "backward"],
    ranks: int,
    loss: dict[str, Any],
) -> None:
    torch.set_num_threads(1)
    module, strategy = Poor(file, most, where, **loss), "auto"
    if ranks > 1:
        # The buckets of the decoder leave before memory runs out in the encoder.
        more: dict[str, Any] = {"start_method": "fork", "bucket_cap_mb": 0.002}
        strategy = replicated_strategy(module.model.config, **more)  # type: ignore[assignment]
    quiet_trainer(file.parent, devices=ranks, strategy=strategy, max_steps=2).fit(module)


def exit_code(
    file: Path,
    most: int | None = None,
    where: Literal["forward", "backward"] = "forward",
    ranks: int = 1,
    **loss: Any,
) -> int | None:
    """Train in another process; fails when it hangs."""
    process = multiprocessing.get_context("fork").Process(
        target=_train, args=(file, most, where, ranks, loss)
    )
    process.start()
    process.join(TIMEOUT)
    hangs = process.is_alive()
    process.kill()
    assert not hangs, f"no end after {TIMEOUT} seconds"
    return process.exitcode


def gradients(file: Path, *settings: Any, **loss: Any) -> list[Any]:
    """Token counts and gradients of both updates."""
    assert exit_code(file, *settings, **loss) == 0
    return [torch.load(file.with_suffix(f".{step}"), weights_only=True) for step in range(2)]


R_DROP = {"consistency": "r_drop", "consistency_weight": 5.0}
"""Without dropout its passes do not differ, and its gradient is that of one."""


# Each process would make the checks anew.
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("loss", [{}, R_DROP])
def test_the_gradient_is_that_of_enough_memory(tmp_path: Path, loss: dict[str, Any]) -> None:
    expected = gradients(tmp_path / "rich")
    actual = gradients(tmp_path / "poor", 3, "backward", **loss)
    for (tokens, poor), (all_tokens, whole) in zip(actual, expected, strict=True):
        assert tokens == all_tokens == sum(batch.target_tokens for batch in BATCHES)
        assert poor.keys() == whole.keys()
        for name, value in whole.items():
            torch.testing.assert_close(poor[name], value, rtol=0, atol=1e-6)
        assert max(value.abs().max() for value in whole.values()) > 1e-2


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_one_of_two_ranks_ends_both(
    tmp_path: Path, where: Literal["forward", "backward"], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(tmp_path / "poor", 3, where, ranks=2) == 1
    reason = "InputError: the device runs out of memory with 7 pairs, .* tokens of both"
    assert re.search(f"{reason}.* halve its batch; set data.batch_tokens", capfd.readouterr().err)


def room_for_four() -> tuple[list[Any], Callable[..., tuple[int, dict[str, Tensor]]]]:
    """A backward pass without memory for more rows, and the batch sizes and paths it was given."""
    tried: list[Any] = []

    def backward(batch: Batch, path: tuple[int, ...]) -> tuple[int, dict[str, Tensor]]:
        tried.append((batch.size, path))
        if batch.size > 4:
            raise torch.OutOfMemoryError
        return batch.target_tokens, {}

    return tried, backward


def test_after_one_batch_too_large_all_are_halved_beforehand() -> None:
    tried, backward = room_for_four()
    accumulate = Accumulator(backward, lambda: None)
    assert accumulate(Update.of([BATCHES[0]], [0])).tokens == BATCHES[0].target_tokens
    # The paths differ, and with them the random numbers.
    assert tried == [(7, (0,)), (4, (0, 0)), (3, (0, 1))]
    tried.clear()
    accumulate(Update.of([BATCHES[0]], [1]))
    assert tried == [(4, (1, 0)), (3, (1, 1))]
    # The others of the same update as well.
    tried, backward = room_for_four()
    alike = [BATCHES[0]] * 4
    totals = Accumulator(backward, lambda: None)(Update.of(alike, [0, 1, 2, 3]))
    assert totals.tokens == 4 * BATCHES[0].target_tokens
    assert [size for size, _ in tried] == [7, *(4 * [4, 3])]

    def no_memory(batch: Batch, path: tuple[int, ...]) -> tuple[int, dict[str, Tensor]]:
        raise torch.OutOfMemoryError

    with pytest.raises(InputError, match="with a single pair, 3 tokens"):
        Accumulator(no_memory, lambda: None)(Update.of([collate([[5]], [[]])], [0]))


def test_halves_hold_the_rows_and_no_needless_padding() -> None:
    whole = BATCHES[0]
    first, second = whole.halves()
    assert (first.size, second.size) == (4, 3)
    rows = [*zip(first.source, first.target_output), *zip(second.source, second.target_output)]  # noqa: B905
    for (source, target), (subwords, right) in zip(rows, ROWS, strict=False):
        assert source[source != 0].tolist() == [*subwords, 3]
        assert target[target != 0].tolist() == [*right, 3]
    assert first.positions + second.positions < whole.positions
