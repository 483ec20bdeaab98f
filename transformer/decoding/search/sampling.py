"""Sampling: each token is drawn from the model's distribution, or from its most likely part.

Sources: Fan et al. 2018, "Hierarchical Neural Story Generation" (top-k); Holtzman et al. 2020,
"The Curious Case of Neural Text Degeneration" (top-p); Hewitt et al. 2022, "Truncation Sampling as
Language Model Desmoothing" (epsilon); Nguyen et al. 2024, "Turning Up the Heat" (min-p).
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.data.batching.batch import Row
from transformer.decoding.search.search import (
    Advanced,
    Finished,
    Hypothesis,
    LogProbabilities,
    Rows,
    Sentences,
    StepFunction,
    run_search,
    scored,
)
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS, EOS


@dataclass(frozen=True)
class Samples(Rows):
    """The samples of each sentence; ended samples have a length, live samples -1."""

    tokens: Int[Tensor, "batch sample length"]
    totals: Float[Tensor, "batch sample"]
    lengths: Int[Tensor, "batch sample"]
    noise: Float[Tensor, "batch sample steps"]

    def advance(
        self, log_probabilities: LogProbabilities, sentences: Sentences, config: SearchConfig
    ) -> Advanced:
        length = self.tokens.size(2) - 1
        token = _draw(truncated(log_probabilities, config), self.noise[:, :, length])
        live = self.lengths < 0
        log_probability = log_probabilities.gather(-1, token[..., None]).squeeze(-1)
        totals = self.totals + log_probability.masked_fill(~live, 0.0)
        lengths = self.lengths.masked_fill(live & (token == EOS), length)
        tokens = torch.cat((self.tokens, token[..., None]), dim=2)
        state = Samples(tokens, totals, lengths, self.noise)
        return Advanced(state, (lengths >= 0).all(1), log_probabilities.amax(-1))

    def result(self, config: SearchConfig) -> Finished:
        """All samples, in the order of the draws."""
        return Finished(self.totals, self.totals, self.lengths, self.tokens[:, :, 1:])


def sample_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig, seeds: Sequence[int]
) -> list[list[Hypothesis]]:
    """Return ``nbest`` samples per sentence, the best first, by one seed per sentence."""
    sentences = Sentences(limits)
    tokens = limits.new_full((len(seeds), config.nbest, 1), BOS)
    totals = torch.zeros(tokens.shape[:2], device=limits.device)
    lengths = limits.new_full(tokens.shape[:2], -1)
    noise = _noise(sentences, config.nbest, seeds)
    results = run_search(Samples(tokens, totals, lengths, noise), step, sentences, config)
    samples = [[scored(sample, config) for sample in of_sentence] for of_sentence in results]
    # Ties keep the order of the draws.
    return [sorted(of_sentence, key=lambda sample: -sample.score) for of_sentence in samples]


def derive_seed(source: Row, seed: int) -> int:
    """A seed that depends on the source, not on its batch or its index in the input."""
    values: object = source.tobytes() if isinstance(source, np.ndarray) else list(source)
    digest = hashlib.sha256(repr((seed, values)).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def truncated(
    log_probabilities: Float[Tensor, "*rows vocab"], config: SearchConfig
) -> Float[Tensor, "*rows vocab"]:
    """Logits after the temperature, ``-inf`` where truncated; the best token is always left."""
    logits = (log_probabilities / config.temperature).log_softmax(-1)
    best = logits.amax(-1, keepdim=True)
    floor = logits.new_full(best.shape, -math.inf)
    if config.top_k:
        kth = logits.topk(min(config.top_k, logits.size(-1))).values[..., -1:]
        floor = torch.maximum(floor, kth)
    if config.top_p < 1:
        ordered = logits.sort(descending=True).values
        # A token is inside if the mass before it is below top_p.
        inside = ordered.exp().cumsum(-1) - ordered.exp() < config.top_p
        floor = torch.maximum(floor, ordered.masked_fill(~inside, math.inf).amin(-1, keepdim=True))
    if config.min_p:
        floor = torch.maximum(floor, best + math.log(config.min_p))
    if config.epsilon:
        floor = floor.clamp(min=math.log(config.epsilon))
    return logits.masked_fill(logits < torch.minimum(floor, best), -math.inf)


def _noise(
    sentences: Sentences, samples: int, seeds: Sequence[int]
) -> Float[Tensor, "batch sample steps"]:
    """Uniform random numbers for each step of each sample; a shorter sentence needs fewer."""
    noise = torch.zeros(len(seeds), samples, sentences.longest + 1, dtype=torch.float64)
    for row, (seed, limit) in enumerate(zip(seeds, sentences.host_limits, strict=True)):
        generator = torch.Generator().manual_seed(seed)
        noise[row, :, : limit + 1] = torch.rand(
            (samples, limit + 1), generator=generator, dtype=torch.float64
        )
    # Rounding must not give 1, which is beyond the last token.
    exact = exact_dtype(sentences.limits.device)
    return noise.clamp(max=1 - torch.finfo(exact).eps / 2).to(sentences.limits.device, exact)


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest floats of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _draw(
    logits: Float[Tensor, "batch sample vocab"], noise: Float[Tensor, "batch sample"]
) -> Int[Tensor, "batch sample"]:
    """Invert the cumulative distribution."""
    cumulative = logits.exp().cumsum(-1, dtype=noise.dtype)
    threshold = noise * cumulative[..., -1]
    token = torch.searchsorted(cumulative, threshold[..., None], right=True).squeeze(-1)
    # NaN is above all numbers; run_search reports it after the step.
    return token.clamp(max=logits.size(-1) - 1)
