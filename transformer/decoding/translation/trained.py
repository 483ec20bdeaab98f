"""What a checkpoint says of translating, besides the model: tokenizer, search, alignment.

It does not know where the checkpoint was found.
"""

from dataclasses import dataclass

from transformer.common.errors import errors_name
from transformer.common.schema import typed
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner
from transformer.decoding.search.config import SearchConfig
from transformer.model.checkpoint.checkpoint import Checkpoint


@dataclass(frozen=True)
class Trained:
    """The typed values of a checkpoint."""

    tokenizer: Tokenizer
    search: SearchConfig
    """With which its run was validated, or that ``tune`` found best."""
    aligner: Aligner


def trained_with(checkpoint: Checkpoint) -> Trained:
    """Read what a checkpoint says of translating.

    Raises:
        InputError: A value is not what training writes, or contradicts the model.
    """
    model = checkpoint.model.config
    with errors_name(checkpoint.path):
        tokenizer = Tokenizer.from_state(checkpoint.tokenizer)
        tokenizer.check_vocabulary_sizes(model.source_vocab_size, model.target_vocab_size)
        search = typed(SearchConfig, checkpoint.config["decoding"], "decoding")
        return Trained(tokenizer, search, Aligner.trained(checkpoint.config["loss"], model))
