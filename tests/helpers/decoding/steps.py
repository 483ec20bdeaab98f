"""Step functions for tests: small language models whose log-probabilities depend on all tokens."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.settings.decoding import SearchConfig


def search_config(**changes: object) -> SearchConfig:
    """Beam search, three wide, without a length penalty; ``changes`` replace fields.

    Sampling follows no beam.
    """
    fields: dict[str, object] = {
        "beam_size": 1 if changes.get("algorithm") == "sampling" else 3,
        "length_penalty": 0.0,
        "max_length_ratio": 0.0,
        "max_length_offset": 8,
    }
    return SearchConfig(**(fields | changes))  # type: ignore[arg-type]


class RecurrentStep:
    """A random recurrent network; its state must follow the search, as a cache must.

    Each sentence starts from its own state, so that sentences differ.
    """

    def __init__(
        self, seeds: list[int], beam: int, vocab: int = 7, width: int = 8, sharpness: float = 2.0
    ) -> None:
        generator = torch.Generator().manual_seed(99)
        self.embedding = torch.randn(vocab, width, generator=generator)
        self.recurrence = torch.randn(width, width, generator=generator)
        self.projection = sharpness * torch.randn(width, vocab, generator=generator)
        starts = [
            torch.randn(width, generator=torch.Generator().manual_seed(seed)) for seed in seeds
        ]
        # batch width -> batch beam width
        self.state = torch.stack(starts)[:, None].expand(-1, beam, -1)
        self.calls = 0
        self.rows = 0

    def __call__(self, tokens: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam vocab"]:
        self.calls += 1
        self.rows += tokens.numel()
        self.state = torch.tanh(self.state @ self.recurrence + self.embedding[tokens])
        return (self.state @ self.projection).log_softmax(dim=-1)

    def reorder(self, beams: Int[Tensor, "batch beam"]) -> None:
        self.state = self.state.gather(1, beams[..., None].expand_as(self.state))

    def keep(self, sentences: Int[Tensor, " kept"]) -> None:
        self.state = self.state[sentences]
