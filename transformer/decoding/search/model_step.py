"""The step of a search by a Transformer with its cache, or by an ensemble of Transformers.

It does not know the search.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.decoding.batching import bucket_batches
from transformer.decoding.search.search import LogProbabilities, StepFunction
from transformer.model.attention.kv_cache import BLOCK, DecoderCache
from transformer.model.attention.masks import Source, padding_mask
from transformer.model.encoder import Memory
from transformer.model.layers.quantization import with_outputs
from transformer.model.transformer import Transformer
from transformer.settings.translator import Averaging

ENCODED = 512
"""Source tokens that a CPU encodes together: on one core, more are no faster (docs/decoding.md)."""


class ModelStep:
    """A ``StepFunction``: a decoder position per call; the source is projected once."""

    def __init__(
        self,
        model: Transformer,
        source: Source,
        beam: int,
        shortlist: Int[Tensor, " tokens"] | None = None,
    ) -> None:
        """Encode padded source tokens, or vectors.

        With a ``shortlist`` of target tokens, a token is its index there, here and in the result.
        """
        self.model = model
        self.tokens = shortlist
        project = model.projection
        self.project = project if shortlist is None else with_outputs(project, shortlist)
        self.beam = beam
        self.cache = model.start(encode(model, source))
        self.cache.gather_source()

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        if self.tokens is not None:
            tokens = self.tokens[tokens]
        if not self.cache.length:
            return self._first(tokens)
        # batch beam -> (batch beam) 1
        flat = tokens.reshape(-1, 1)
        following = next_log_probabilities(self.model, flat, self.cache, self.project)
        # (batch beam) vocab -> batch beam vocab
        return following.unflatten(0, tokens.shape)

    def _first(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        """Compute one hypothesis per sentence and copy it: all are the same at the start."""
        following = next_log_probabilities(self.model, tokens[:, :1], self.cache, self.project)
        sentences = torch.arange(len(tokens), device=tokens.device)
        self.cache.reorder(sentences.repeat_interleave(self.beam))
        return following[:, None].repeat(1, self.beam, 1)

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        first = torch.arange(len(beams), device=beams.device) * self.beam
        # batch beam -> (batch beam)
        self.cache.reorder((first[:, None] + beams).flatten())

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        self.cache.keep(sentences, self.beam)


def next_log_probabilities(
    model: Transformer, tokens: Int[Tensor, "rows 1"], cache: DecoderCache, project: nn.Module
) -> Float[Tensor, "rows vocab"]:
    """Append one token to each row of the cache; return the log-probabilities of the next."""
    return project(model.decode(tokens, cache)[:, -1]).float().log_softmax(dim=-1)


def encode(model: Transformer, source: Source) -> Memory:
    """Encode a source padded at the right; a CPU encodes similar lengths together, to pad less."""
    parts: list[tuple[slice | list[int], int]] = [(slice(None), source.size(1))]
    if source.device.type == "cpu":
        lengths = padding_mask(source, model.config.pad).sum((1, 2, 3)).tolist()
        parts = [(rows, lengths[rows[0]]) for rows in bucket_batches(lengths, ENCODED)]
    encoded = [(rows, model.encode(source[rows, :length])) for rows, length in parts]
    first = encoded[0][1].hidden
    # The softmax of the decoder is faster with at least BLOCK positions.
    longest = max(BLOCK, *(part.hidden.size(1) for _, part in encoded))
    hidden = first.new_zeros(len(source), longest, first.size(2))
    mask = torch.zeros(len(source), 1, 1, longest, dtype=torch.bool, device=source.device)
    for rows, part in encoded:
        hidden[rows, : part.hidden.size(1)] = part.hidden
        mask[rows, ..., : part.hidden.size(1)] = part.mask
    return Memory(hidden, mask)


class Ensemble(nn.Module):
    """Models of the same vocabularies, whose distributions are averaged at each step.

    Source: Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks", sec. 3.6.

    Attributes:
        members: The models; attention is read from the first.
        averaging: ``probability`` takes the arithmetic mean of the distributions;
            ``log_probability`` the normalized geometric mean, so that one model can veto.
        config: Config of the first model, with the shortest ``max_length`` of all models.
    """

    def __init__(self, models: Sequence[Transformer], averaging: Averaging = "probability") -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.members = list(models)
        self.averaging = averaging
        shortest = min(model.config.max_length for model in models)
        self.config = replace(models[0].config, max_length=shortest)

    @property
    def max_lengths(self) -> tuple[int, int]:
        """Maximal tokens of a source and of a target in every model."""
        sources, targets = zip(*(member.max_lengths for member in self.members), strict=True)
        return min(sources), min(targets)

    def combine(
        self, log_probabilities: Sequence[Float[Tensor, "*rows vocab"]]
    ) -> Float[Tensor, "*rows vocab"]:
        """Average the log-probabilities of the models."""
        stacked = torch.stack(list(log_probabilities))
        if self.averaging == "probability":
            return stacked.logsumexp(0) - math.log(len(stacked))
        return stacked.mean(0).log_softmax(-1)


Model = Transformer | Ensemble


def ensemble_members(model: Model) -> list[Transformer]:
    """The models of an ensemble, or the one model."""
    return model.members if isinstance(model, Ensemble) else [model]


class EnsembleStep:
    """A ``StepFunction`` that averages the steps of all models."""

    def __init__(self, ensemble: Ensemble, steps: Sequence[ModelStep]) -> None:
        self.ensemble = ensemble
        self.steps = steps

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        return self.ensemble.combine([step(tokens) for step in self.steps])

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        for step in self.steps:
            step.reorder(beams)

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        for step in self.steps:
            step.keep(sentences)


def build_step(
    model: Model,
    source: Source,
    beam: int,
    shortlist: Int[Tensor, " tokens"] | None = None,
) -> StepFunction:
    """The step of a search over padded source tokens, ``beam`` hypotheses per sentence."""
    steps = [ModelStep(member, source, beam, shortlist) for member in ensemble_members(model)]
    return EnsembleStep(model, steps) if isinstance(model, Ensemble) else steps[0]
