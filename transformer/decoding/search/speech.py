"""Steps of the search of Whisper's models: a given beginning, and the times of a text.

Source: Radford et al. 2022, sections 2.3 and 4.5, and the rules of their code.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.search.search import LogProbabilities, LookingAhead, StepFunction
from transformer.settings.tokenizer import EOS

FIRST_TIME = 50
"""Of the times, the last with which a text may begin: that of 1 s."""


class SilenceRecorder:
    """Records, of each sound of one search, the probability that nobody speaks.

    It is that of a ``symbol`` as the first token. Source: Radford et al. 2022, section 4.5.
    """

    def __init__(self, symbol: int | None) -> None:
        """Read the id of the symbol; None for a model without it."""
        self.symbol = symbol
        self._log_probabilities: Float[Tensor, " batch"] | None = None

    def __call__(self, log_probabilities: LogProbabilities) -> None:
        if self.symbol is not None:
            # A copy: later steps overwrite the log-probabilities.
            self._log_probabilities = log_probabilities[:, 0, self.symbol].clone()

    def probabilities(self) -> list[float] | None:
        """After the search; None without the symbol."""
        recorded = self._log_probabilities
        return None if recorded is None else recorded.exp().tolist()


class PromptedStep:
    """Wraps a ``StepFunction``: hypotheses continue a ``prompt``, which is no part of them.

    No hypothesis begins with a token of ``never_first``. ``on_first_step`` is told the
    log-probabilities after the symbol of the beginning, before the prompt.
    """

    def __init__(
        self,
        step: StepFunction,
        prompt: Int[Tensor, "batch length"],
        never_first: Int[Tensor, " banned"],
        on_first_step: Callable[[LogProbabilities], object] = lambda log_probabilities: None,
    ) -> None:
        assert not isinstance(step, LookingAhead)
        self.step = step
        self.prompt: Tensor | None = prompt
        self.never_first = never_first
        self.on_first_step = on_first_step
        self.reorder = step.reorder
        self.keep = step.keep

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        log_probabilities = self.step(tokens)
        if self.prompt is None:
            return log_probabilities
        self.on_first_step(log_probabilities)
        for column in self.prompt.unbind(1):
            # batch -> batch beam
            log_probabilities = self.step(column[:, None].expand(tokens.shape))
        self.prompt = None
        return log_probabilities.index_fill_(-1, self.never_first, -math.inf)


class TimedStep:
    """Wraps a ``StepFunction``: a text is pieces, each between the times of its start and its end.

    A text begins with a time, of at most `FIRST_TIME`. Times do not decrease, and a piece does not
    end when it starts. A time follows if all times together are more probable than each subword.
    """

    def __init__(self, step: StepFunction, times: range, first_tag: int) -> None:
        """Read ids: ``times``, the last of the vocabulary, and the number of its subwords."""
        assert not isinstance(step, LookingAhead)
        self.step = step
        self.times = times
        self.first_tag = first_tag
        self.history: Tensor | None = None

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> LogProbabilities:
        log_probabilities = self.step(tokens)
        if self.history is None:
            # The symbol of the beginning is no part of a text.
            self.history = tokens[..., None][..., :0]
            log_probabilities[..., : self.times.start] = -math.inf
            log_probabilities[..., self.times.start + FIRST_TIME + 1 :] = -math.inf
            return log_probabilities
        self.history = torch.cat((self.history, tokens[..., None]), dim=2)
        is_time = self.history >= self.times.start
        last = is_time[..., -1]
        before = is_time[..., -2] if is_time.size(2) > 1 else torch.ones_like(last)
        subwords = torch.zeros_like(log_probabilities[0, 0], dtype=torch.bool)
        subwords[: self.first_tag] = True
        subwords[EOS] = False
        text_banned = (last & ~before)[..., None] & subwords
        earliest = torch.where(is_time, self.history, self.times.start - 1).amax(2)
        earliest = earliest + (~(last & ~before)).long()
        ids = torch.arange(log_probabilities.size(2), device=tokens.device)
        past = (ids >= self.times.start) & (ids < earliest[..., None])
        times_banned = (last & before)[..., None] & (ids >= self.times.start)
        log_probabilities.masked_fill_(text_banned | past | times_banned, -math.inf)
        log_probabilities[..., : self.times.start].masked_fill_(
            self._is_due(log_probabilities)[..., None], -math.inf
        )
        return log_probabilities

    def _is_due(self, log_probabilities: LogProbabilities) -> Bool[Tensor, "batch beam"]:
        """Whether the next token of a hypothesis must be a time."""
        times = log_probabilities[..., self.times.start :].logsumexp(-1)
        return times > log_probabilities[..., : self.times.start].amax(-1)

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        self.step.reorder(beams)
        if self.history is not None:
            index = beams[..., None].expand(-1, -1, self.history.size(2))
            self.history = self.history.gather(1, index)

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        self.step.keep(sentences)
        if self.history is not None:
            self.history = self.history[sentences]
