"""An ensemble: distributions averaged at every step (Sutskever et al. 2014, section 3.6)."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.decoding.search.interface import LogProbabilities, StepFunction
from transformer.decoding.search.model_step import ModelStep
from transformer.model.transformer import Transformer
from transformer.settings.translator import Averaging


class Ensemble(nn.Module):
    """Models of one source and one target vocabulary.

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
    def max_length(self) -> int | None:
        """Maximal tokens of a sentence in every model; None if no model has a limit."""
        return min((m.max_length for m in self.members if m.max_length is not None), default=None)

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
        self.ensemble, self.steps = ensemble, steps

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
    source: Int[Tensor, "batch source"],
    beam: int,
    shortlist: Int[Tensor, " tokens"] | None = None,
) -> StepFunction:
    """The step of a search over padded source tokens, ``beam`` hypotheses per sentence."""
    steps = [ModelStep(one, source, beam, shortlist) for one in ensemble_members(model)]
    return EnsembleStep(model, steps) if isinstance(model, Ensemble) else steps[0]
