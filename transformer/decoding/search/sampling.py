"""Sampling: each next token is drawn from the model's distribution, or from its most likely part.

It does not know the model. Sources: Fan et al. 2018, "Hierarchical Neural Story Generation"
(top-k); Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration" (top-p); Hewitt et al.
2022, "Truncation Sampling as Language Model Desmoothing" (epsilon); Nguyen et al. 2024, "Turning Up
the Heat: Min-p Sampling for Creative and Coherent LLM Outputs" (min-p).
"""

import hashlib
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.data.tokenization.tokenizer import BOS, EOS
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.interface import Hypothesis, StepFunction, check_no_nan, constrain


def sample_search(
    step: StepFunction, limits: Int[Tensor, " batch"], config: SearchConfig, seeds: Sequence[int]
) -> list[list[Hypothesis]]:
    """Return ``nbest`` samples a sentence, the best first, in the order of the sentences.

    The step is ``nbest`` wide. There is one seed a sentence; its samples depend on no other
    sentence. Other arguments and errors are those of ``beam_search``.
    """
    found: list[list[Hypothesis]] = [[] for _ in seeds]
    sentences = list(range(len(seeds)))
    noise = _noise(limits, config.nbest, seeds)
    tokens = limits.new_full((len(seeds), config.nbest, 1), BOS)
    totals = torch.zeros(tokens.shape[:2], device=limits.device)
    lengths = limits.new_full(tokens.shape[:2], -1)
    while sentences:
        length = tokens.size(2) - 1
        log_probabilities = step(tokens[:, :, -1])
        constrain(log_probabilities, tokens, limits, config)
        check_no_nan(log_probabilities, length)
        chosen = _draw(truncated(log_probabilities, config), noise[:, :, length])
        live = lengths < 0
        drawn = log_probabilities.gather(-1, chosen[..., None]).squeeze(-1)
        totals = totals + drawn.masked_fill(~live, 0.0)
        lengths = torch.where(live & (chosen == EOS), length, lengths)
        tokens = torch.cat((tokens, chosen[..., None]), dim=2)
        done = (lengths >= 0).all(1)
        if done.any():
            for row in done.nonzero().squeeze(1).tolist():
                found[sentences[row]] = _ranked(tokens[row], lengths[row], totals[row], config)
            alive = (~done).nonzero().squeeze(1)
            sentences = [sentences[row] for row in alive.tolist()]
            tokens, totals, lengths, limits, noise = (
                part[alive] for part in (tokens, totals, lengths, limits, noise)
            )
            if sentences:
                step.keep(alive)
    return found


def derive_seed(subwords: Sequence[int], seed: int) -> int:
    """A seed that depends on the text, not on its batch or its index in the input."""
    digest = hashlib.sha256(repr((seed, list(subwords))).encode()).digest()
    return int.from_bytes(digest[:7], "big")


def truncated(
    log_probabilities: Float[Tensor, "*rows vocab"], config: SearchConfig
) -> Float[Tensor, "*rows vocab"]:
    """The logits of the tokens that may be drawn; the rest is ``-inf``, but never the best token.

    The temperature comes first; each truncation applies to the result.
    """
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
    limits: Int[Tensor, " batch"], samples: int, seeds: Sequence[int]
) -> Float[Tensor, "batch sample steps"]:
    """Uniform random numbers for each step of each sample; a shorter sentence needs fewer."""
    noise = torch.zeros(len(seeds), samples, int(limits.max()) + 1, dtype=torch.float64)
    for row, (seed, limit) in enumerate(zip(seeds, limits.tolist(), strict=True)):
        generator = torch.Generator().manual_seed(seed)
        noise[row, :, : limit + 1] = torch.rand(
            (samples, limit + 1), generator=generator, dtype=torch.float64
        )
    # Rounding must not make it 1, which is past the last token.
    exact = exact_dtype(limits.device)
    return noise.clamp(max=1 - torch.finfo(exact).eps / 2).to(limits.device, exact)


def exact_dtype(device: torch.device) -> torch.dtype:
    """The widest floats of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _draw(
    logits: Float[Tensor, "batch sample vocab"], noise: Float[Tensor, "batch sample"]
) -> Int[Tensor, "batch sample"]:
    """Invert the cumulative distribution."""
    cumulative = logits.exp().cumsum(-1, dtype=noise.dtype)
    threshold = noise * cumulative[..., -1]
    return torch.searchsorted(cumulative, threshold[..., None], right=True).squeeze(-1)


def _ranked(
    tokens: Int[Tensor, "sample length"],
    lengths: Int[Tensor, " sample"],
    totals: Float[Tensor, " sample"],
    config: SearchConfig,
) -> list[Hypothesis]:
    """The samples of one sentence, the best first; ties keep the order of the draws."""
    columns = zip(tokens[:, 1:].tolist(), lengths.tolist(), totals.tolist(), strict=True)
    samples = [
        Hypothesis(tuple(row[:length]), total / config.penalty(length + 1), total)
        for row, length, total in columns
    ]
    return sorted(samples, key=lambda sample: -sample.score)
