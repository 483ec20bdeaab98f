"""Train with one idea that the framework has not, to see whether it should have it.

    IDEA=NAME python benchmarks/training/ideas.py OVERRIDES...

The ideas replace functions of the framework in this process: z_loss (Chowdhery et al. 2022), the
square of log Z times 1e-4; cautious (Chen et al. 2025), decay only where the update shrinks the
weight, too; wsd, the rate stays until the last 30% of the updates and falls in a line; growing,
batches of a quarter, a half and a quarter of the tokens with one, two and four batches of text
each; averages, which keeps moving averages beside that of the run and writes them at its end.
"""

import os
import sys
from itertools import count

import torch
from torch.utils.data import DataLoader

from transformer.__main__ import main
from transformer.data.batching import loader
from transformer.training import muon, optimization
from transformer.training.callbacks import ema
from transformer.training.losses import cross_entropy

Z_LOSS = 1e-4
FALLS = 0.3


def z_loss() -> None:
    def formula(logits, target, mean, smoothing, ignored=cross_entropy.NO_TOKEN):
        target = target[None]
        target_logit = logits.gather(-1, target)
        top = logits.amax(-1, keepdim=True)
        grad = logits.sub_(top).exp_()
        z = grad.sum(-1, keepdim=True)
        log_z = top + z.log()
        uniform = smoothing / logits.size(-1)
        grad.mul_((1 + 2 * Z_LOSS * log_z) / z).sub_(uniform)
        grad.scatter_add_(-1, target, grad.new_full(target.shape, smoothing - 1))
        loss = (1 - smoothing) * (log_z - target_logit).sum() + smoothing * (log_z - mean).sum()
        return loss + Z_LOSS * log_z.square().sum()

    cross_entropy._formula = formula


def cautious() -> None:
    step_matrices = muon.Muon._step_matrices
    step_adam = muon.Muon._step_adam

    def cautiously(step, self, weights, group):
        decay = group["weight_decay"]
        before = [weight.detach().clone() for weight in weights]
        group["weight_decay"] = 0.0
        step(self, weights, group)
        group["weight_decay"] = decay
        for weight, old in zip(weights, before, strict=True):
            shrinks = ((old - weight) * old) >= 0
            weight.sub_(old * shrinks, alpha=group["lr"] * decay)

    muon.Muon._step_matrices = lambda *a: cautiously(step_matrices, *a)
    muon.Muon._step_adam = lambda *a: cautiously(step_adam, *a)


def wsd() -> None:
    def factor(config, d_model, update):
        if update < config.warmup:
            return update / config.warmup
        progress = min((update - config.warmup) / (config.total - config.warmup), 1.0)
        return min(1.0, (1 - progress) / FALLS)

    optimization.schedule_factor = factor


def growing() -> None:
    stages = [tuple(map(int, stage.split("x"))) for stage in os.environ["STAGES"].split(",")]

    def of_updates(self):
        self._start()
        data = DataLoader(
            self.dataset, sampler=map(self.sequence.__getitem__, count()), batch_size=None
        )
        batches, number = iter(data), count()
        for updates, together in stages:
            for _ in range(updates):
                numbers = [next(number) for _ in range(together)]
                yield loader.Update.of([next(batches) for _ in numbers], numbers)

    loader.UpdateLoader.__iter__ = of_updates


def averages() -> None:
    """Decays as they are, or ``pN``: (1 - 1/n)^N at the n-th update, a share of the training."""
    kinds = os.environ["AVERAGES"].split(",")
    kept = {}
    average, save = ema.MovingAverage._average, ema.MovingAverage.on_save_checkpoint

    @torch.no_grad()
    def all_of_them(self, applied):
        average(self, applied)
        n = int(self._count)
        for kind in kinds:
            if kind not in kept:
                kept[kind] = [weight.detach().clone() for weight in self._weights]
            decay = (1 - 1 / n) ** float(kind[1:]) if kind[0] == "p" else float(kind)
            for mean, weight in zip(kept[kind], self._weights, strict=True):
                mean.lerp_(weight, 1 - decay if n > 1 else 1.0)

    def save_all(self, trainer, module, checkpoint):
        save(self, trainer, module, checkpoint)
        names = {id(w): i for i, w in enumerate(self._weights)}
        torch.save(
            {
                kind: {
                    name: kept[kind][names[id(weight)]]
                    for name, weight in module.named_parameters(remove_duplicate=False)
                }
                for kind in kept
            },
            os.environ["AVERAGES_FILE"],
        )

    ema.MovingAverage._average = all_of_them
    ema.MovingAverage.on_save_checkpoint = save_all


if __name__ == "__main__":
    {f.__name__: f for f in (z_loss, cautious, wsd, growing, averages)}[os.environ["IDEA"]]()
    sys.exit(main(["train", *sys.argv[1:]]))
