"""A step that lets nothing follow but what the prefix and the never-phrases allow.

Any search over it obeys them. It knows neither the model behind the step nor how a search chooses;
phrases that must occur are a matter of the search itself (``allocation.py``).
"""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.decoding.constraints.phrase_automaton import PhraseAutomaton
from transformer.decoding.search.interface import StepFunction


class ConstrainedStep:
    """A ``StepFunction`` over another one: what may not follow is ``-inf``, the rest is as it was.

    That of a sentence without constraints is all as it was.
    """

    def __init__(
        self,
        step: StepFunction,
        prefixes: Int[Tensor, "batch forced"],
        limits: Int[Tensor, " batch"],
        apart: Bool[Tensor, "batch vocab"] | None = None,
        never: tuple[PhraseAutomaton, Int[Tensor, "batch beam"]] | None = None,
    ) -> None:
        """Begin before the first token.

        Args:
            step: Gives log-probabilities.
            prefixes: Pieces that come first; -1 fills up what is shorter than others.
            limits: The most pieces of each sentence, as the search has them.
            apart: Pieces that may not follow the last of the prefix.
            never: Finds phrases; and its states, those of the sets that each sentence may not say.
        """
        self.step = step
        self.prefixes = prefixes
        self.lengths = (prefixes >= 0).sum(1)
        self.limits = limits
        self.apart = apart
        self.never = never
        self.position = 0

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """Append one token to each hypothesis; return what may follow."""
        log_probabilities = self.step(tokens)
        forced = self._force(log_probabilities)
        if self.never is not None:
            automaton, states = self.never
            states = automaton.read(states, tokens)
            self.never = (automaton, states)
            ruled_out = automaton.completing(states)
            # The last piece, after which the search forces the end.
            if (last := self.limits == self.position + 1).any():
                ruled_out[last] |= automaton.completing(states[last], at_end=True)
            # What the prefix has said cannot be unsaid: without this nothing could follow it.
            ruled_out &= ~(forced[:, None] | automaton.found[states])[..., None]
            log_probabilities.masked_fill_(ruled_out, -math.inf)
        if self.apart is not None and (here := self.lengths == self.position).any():
            log_probabilities.masked_fill_((here[:, None] & self.apart)[:, None], -math.inf)
        self.position += 1
        return log_probabilities

    def _force(
        self, log_probabilities: Float[Tensor, "batch beam vocab"]
    ) -> Bool[Tensor, " batch"]:
        """Leave nothing but the next piece of the prefix; return where there is one."""
        forced = self.lengths > self.position
        if forced.any():
            rows = forced.nonzero().squeeze(1)
            subwords = self.prefixes[rows, self.position]
            kept = log_probabilities[rows, :, subwords]
            log_probabilities[rows] = -math.inf
            log_probabilities[rows, :, subwords] = kept
        return forced

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        """Let each hypothesis go on from the one of its sentence that ``beams`` names."""
        self.step.reorder(beams)
        if self.never is not None:
            automaton, states = self.never
            self.never = (automaton, states.gather(1, beams))

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """Forget all sentences but these."""
        self.step.keep(sentences)
        self.prefixes, self.lengths = self.prefixes[sentences], self.lengths[sentences]
        self.limits = self.limits[sentences]
        if self.apart is not None:
            self.apart = self.apart[sentences]
        if self.never is not None:
            automaton, states = self.never
            self.never = (automaton, states[sentences])
