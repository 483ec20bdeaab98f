"""A step that enforces the prefix and the forbidden phrases, under any search.

It knows neither the model behind the step nor how a search chooses; phrases that must occur need a
search of their own (``allocated_search``).
"""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.constraints.phrase_automaton import PhraseAutomaton
from transformer.decoding.search.interface import StepFunction


class ConstrainedStep:
    """A ``StepFunction`` over another one: gives the tokens that a constraint forbids ``-inf``."""

    def __init__(
        self,
        step: StepFunction,
        prefixes: Int[Tensor, "batch forced"],
        limits: Int[Tensor, " batch"],
        after_prefix: Bool[Tensor, "batch vocab"] | None = None,
        never: tuple[PhraseAutomaton, Int[Tensor, "batch beam"]] | None = None,
    ) -> None:
        """Begin before the first token; see ``CompiledConstraints``.

        ``limits`` are those of the search; ``never`` has a state for each hypothesis.
        """
        self.step = step
        self.prefixes = prefixes
        self.lengths = (prefixes >= 0).sum(1)
        self.limits = limits
        self.after_prefix = after_prefix
        self.automaton: PhraseAutomaton | None = None
        if never is not None:
            self.automaton, self.states = never
        self.position = 0

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """See ``StepFunction``."""
        log_probabilities = self.step(tokens)
        forced = self._force(log_probabilities)
        if (automaton := self.automaton) is not None:
            self.states = states = automaton.read(self.states, tokens)
            banned = automaton.completing(states)
            # After the last subword the search forces the end.
            if (last := self.limits == self.position + 1).any():
                banned[last] |= automaton.completing(states[last], at_end=True)
            # A phrase in the prefix cannot be avoided; without this nothing could follow it.
            banned &= ~(forced[:, None] | automaton.found[states])[..., None]
            log_probabilities.masked_fill_(banned, -math.inf)
        if self.after_prefix is not None and (here := self.lengths == self.position).any():
            log_probabilities.masked_fill_((here[:, None] & self.after_prefix)[:, None], -math.inf)
        self.position += 1
        return log_probabilities

    def _force(
        self, log_probabilities: Float[Tensor, "batch beam vocab"]
    ) -> Bool[Tensor, " batch"]:
        """Allow only the next subword of the prefix; return which sentences have one."""
        forced = self.lengths > self.position
        if forced.any():
            rows = forced.nonzero().squeeze(1)
            subwords = self.prefixes[rows, self.position]
            kept = log_probabilities[rows, :, subwords]
            log_probabilities[rows] = -math.inf
            log_probabilities[rows, :, subwords] = kept
        return forced

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        """See ``StepFunction``."""
        self.step.reorder(beams)
        if self.automaton is not None:
            self.states = self.states.gather(1, beams)

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """See ``StepFunction``."""
        self.step.keep(sentences)
        self.prefixes, self.lengths = self.prefixes[sentences], self.lengths[sentences]
        self.limits = self.limits[sentences]
        if self.after_prefix is not None:
            self.after_prefix = self.after_prefix[sentences]
        if self.automaton is not None:
            self.states = self.states[sentences]
