"""The step of a search by a Transformer with its cache.

It knows the model, and neither how the search chooses nor text.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.model.transformer import Transformer


class ModelStep:
    """A ``StepFunction``: one decoder position a call, for all hypotheses of all sentences.

    Keys and values of the source are computed here, once for each sentence.
    """

    def __init__(self, model: Transformer, source: Int[Tensor, "batch source"], beam: int) -> None:
        """Encode the padded source tokens of a batch, to be searched ``beam`` wide."""
        self.model = model
        self.beam = beam
        self.cache = model.start(model.encode(source))

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        """Append one token to each hypothesis; return the log-probabilities of the next."""
        # batch beam -> (batch beam) 1
        hidden = self.model.decode(tokens.reshape(-1, 1), self.cache)
        logits = self.model.logits(hidden[:, -1]).float()
        # (batch beam) vocab -> batch beam vocab
        return logits.log_softmax(dim=-1).unflatten(0, tokens.shape)

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        """Let each hypothesis go on from the one of its sentence that ``beams`` names."""
        first = torch.arange(len(beams), device=beams.device) * self.beam
        # batch beam -> (batch beam)
        self.cache.reorder((first[:, None] + beams).flatten())

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        """Forget all sentences but these."""
        self.cache.keep(sentences, self.beam)
