"""The step of a search by a Transformer with its cache.

It knows the model, and neither how the search chooses nor text.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from transformer.model.attention.kv_cache import BLOCK
from transformer.model.encoder import Memory
from transformer.model.transformer import Transformer


class ModelStep:
    """A ``StepFunction``: one decoder position a call, for all hypotheses of all sentences.

    Keys and values of the source are computed here, once for each sentence.
    """

    def __init__(self, model: Transformer, source: Int[Tensor, "batch source"], beam: int) -> None:
        """Encode the padded source tokens of a batch, to be searched ``beam`` wide."""
        self.model = model
        self.beam = beam
        self.cache = model.start(padded_memory(model.encode(source)))
        self.cache.gather_source()

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """Append one token to each hypothesis; return the log-probabilities of the next."""
        if not self.cache.length:
            return self._begin(tokens)
        # batch beam -> (batch beam) 1
        hidden = self.model.decode(tokens.reshape(-1, 1), self.cache)
        # (batch beam) vocab -> batch beam vocab
        return self._following(hidden).unflatten(0, tokens.shape)

    def _begin(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """All hypotheses of a sentence begin alike: one is computed, the others branch off it."""
        hidden = self.model.decode(tokens[:, :1], self.cache)
        sentences = torch.arange(len(tokens), device=tokens.device)
        self.cache.reorder(sentences.repeat_interleave(self.beam))
        return self._following(hidden)[:, None].repeat(1, self.beam, 1)

    def _following(self, hidden: Float[Tensor, "rows 1 width"]) -> Float[Tensor, "rows vocab"]:
        return self.model.logits(hidden[:, -1]).float().log_softmax(dim=-1)

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        """Let each hypothesis go on from the one of its sentence that ``beams`` names."""
        first = torch.arange(len(beams), device=beams.device) * self.beam
        # batch beam -> (batch beam)
        self.cache.reorder((first[:, None] + beams).flatten())

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """Forget all sentences but these."""
        self.cache.keep(sentences, self.beam)


def padded_memory(memory: Memory) -> Memory:
    """At least ``BLOCK`` source positions, the last of them hidden, as the softmax likes them."""
    lacking = BLOCK - memory.hidden.size(1)
    if lacking <= 0:
        return memory
    return Memory(F.pad(memory.hidden, (0, 0, 0, lacking)), F.pad(memory.mask, (0, lacking)))
