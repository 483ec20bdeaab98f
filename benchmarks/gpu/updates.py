"""Rows of ``python -m benchmarks.gpu`` on updates: ours, and those of other frameworks beside them.

An update is a model's forward and backward pass, clipping and Adam on batches that are on the
GPU already: what a run, with its loader, logs and checks, can reach at best.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.cost import Size
from benchmarks.gpu.measure import CHUNK, TOKENS, Bench, Values, elapsed
from benchmarks.gpu.models import built, made_batches, model_config, size_of
from transformer.common.cuda_graphs import GpuRecorder
from transformer.data.batching.batch import Batch, BatchShape, shaped
from transformer.data.batching.batch_shapes import LABEL_STEP
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import PAD, TokenizerConfig
from transformer.settings.training import LossConfig, OptimizerConfig, TrainerConfig
from transformer.tasks.translation import TranslationModule
from transformer.training.cuda_graphs import Backward, GraphedBackward
from transformer.training.layer_wrappers import compile_layers
from transformer.training.optimization import build_optimizer

BATCHES = 10
"""Of different shapes, updated with in turn; a time is that of all."""
ADAM = OptimizerConfig("adam", lr=1e-4, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
CLIP = 1.0


def ours(
    bench: Bench,
    model: str = "base",
    *,
    compiled: bool = False,
    graphs: bool = False,
    tokens: int = TOKENS,
    chunk: int = CHUNK,
    **changes: Any,
) -> Values:
    """Updates of a preset, as a run in ``bf16-mixed`` makes them."""
    update = Update(bench, model, compiled=compiled, graphs=graphs, chunk=chunk, **changes)
    return measured(bench, update, size_of(update.module.model.config), tokens, shapes=graphs)


def marian(bench: Bench) -> Values:
    """Updates of Hugging Face's Marian with our weights, its fused attention and bfloat16."""
    from benchmarks.support.marian_twin import logits
    from benchmarks.support.marian_twin import marian as twin

    model: Any = twin(built(bench, "base"))
    model.to(bench.device).train()
    return _plain(bench, model, partial(logits, model))


def torch_transformer(bench: Bench) -> Values:
    """Updates of ``torch.nn.Transformer`` of the same shape."""
    from benchmarks.support.torch_twin import TorchTransformer

    model = TorchTransformer(built(bench, "base")).to(bench.device).train()
    return _plain(bench, model, lambda batch: model(batch.source, batch.target_input))


def launches(bench: Bench, *, compiled: bool = False) -> Values:
    """Kernels that an update launches."""
    update = Update(bench, "base", compiled=compiled)
    batch = made_batches(bench, bench.of(TOKENS), 1)[0].to(bench.device)
    for _ in range(2):
        update(batch)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if bench.on_gpu else ())]
    with profile(activities=activities) as watched:
        update(batch)
    counted = (event for event in watched.key_averages() if "LaunchKernel" in event.key)
    return {"kernels": sum(event.count for event in counted)}


def shapes(bench: Bench) -> Values:
    """Milliseconds of an update whose shape the GPU meets for the first time, and again."""
    update = Update(bench, "base")
    count = bench.of(4 * BATCHES)
    batches = [made.to(bench.device) for made in made_batches(bench, bench.of(TOKENS), count)]
    for warm_up in made_batches(bench, bench.of(TOKENS // 2), 3):
        update(warm_up.to(bench.device))

    def all_of_them() -> None:
        for batch in batches:
            update(batch)

    return {
        f"ms an update, {seen}": elapsed(bench.device, all_of_them) / len(batches)
        for seen in ("shapes seen first", "seen again")
    }


class Update:
    """Updates of a new model of ours without Lightning, loader, logs and checks."""

    def __init__(
        self,
        bench: Bench,
        model: str,
        *,
        compiled: bool = False,
        graphs: bool = False,
        chunk: int = CHUNK,
        **changes: Any,
    ) -> None:
        """``graphs`` are recorded of batches with a shape, but not on a CPU."""
        config = RunConfig(
            loss=LossConfig(chunk=bench.of(chunk)),
            optimizer=ADAM,
            trainer=TrainerConfig(gradient_clip_val=CLIP, compile="none"),
        )
        unused = Tokenizer.train(
            TokenizerConfig(algorithm="char", vocab_size=None), lambda: [("a", "b")]
        )
        self.module = TranslationModule(
            config, unused, model=built(bench, model, **changes)
        ).train()
        if compiled:
            compile_layers(self.module.model)
            self.module.compiled = True
        self.adam = build_optimizer(ADAM, self.module)
        self.backward: Backward = self._plain_backward
        if graphs and bench.on_gpu:
            recorder = GpuRecorder(bench.device)
            self.backward = GraphedBackward(self.backward, self.module.parameters(), recorder)

    def _plain_backward(self, batch: Batch) -> tuple[int, dict[str, Tensor]]:
        with torch.autocast(batch.source.device.type, torch.bfloat16):
            loss, tokens, sums = self.module.micro_loss(batch)
        loss.backward()
        return tokens, sums

    def __call__(self, batch: Batch) -> None:
        """Update once."""
        tokens, _ = self.backward(batch)
        self.module.normalize(tokens, self.adam)
        self.adam.step()
        self.adam.zero_grad()


def with_shape(batch: Batch) -> Batch:
    """The batch with a shape of its own size, and labels in whole blocks."""
    rows, target = batch.target_input.shape
    labels = min(rows * target, -(-batch.target_tokens // LABEL_STEP) * LABEL_STEP)
    return shaped(batch, BatchShape(rows, batch.source.shape[1], target, labels))


def _plain(bench: Bench, model: nn.Module, logits: Callable[[Batch], Tensor]) -> Values:
    """Updates as a plain loop makes them, with the same optimizer and loss as ours."""
    adam = build_optimizer(ADAM, model)

    def update(batch: Batch) -> None:
        with torch.autocast(bench.device.type, torch.bfloat16):
            predicted = logits(batch)
        loss = F.cross_entropy(
            predicted.flatten(0, 1).float(),
            batch.target_output.flatten(),
            ignore_index=PAD,
            label_smoothing=0.1,
        )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        adam.zero_grad()

    return measured(bench, update, size_of(model_config(bench, "base")), TOKENS)


def measured(
    bench: Bench,
    update: Callable[[Batch], None],
    size: Size,
    tokens: int,
    *,
    shapes: bool = False,
) -> Values:
    """Speed, share of what the GPU can do, and memory of updates with so many tokens a side.

    With ``shapes`` each batch has a shape of its own, which is met again in each turn.
    """
    batches = made_batches(bench, bench.of(tokens), bench.of(BATCHES))
    targets = sum(batch.target_tokens for batch in batches)
    sources = sum(batch.source_tokens for batch in batches)
    pairs = sum(batch.size for batch in batches)
    flops = size.training_flops(sources / pairs, targets / pairs) * pairs
    if shapes:
        batches = [with_shape(batch) for batch in batches]
    batches = [batch.to(bench.device) for batch in batches]

    def all_of_them() -> None:
        for batch in batches:
            update(batch)

    timing = bench.time(all_of_them)
    seconds = timing.pop("ms") / 1000
    peak = bench.peak()
    rate = flops / seconds / 1e12
    return {
        "target tokens/s": targets / seconds,
        "ms an update": seconds * 1000 / len(batches),
        "TFLOP/s": rate,
        "of products": rate / bench.products(torch.bfloat16)["TFLOP/s"],
        "peak GiB": peak,
        **timing,
    }
