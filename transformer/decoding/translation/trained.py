"""The settings of a checkpoint for translation: tokenizer, search, alignment."""

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
    """The search of its run's validation, or the best that ``tune`` found."""
    aligner: Aligner


def trained_with(checkpoint: Checkpoint) -> Trained:
    """Read the settings of a checkpoint; raises InputError if a value is wrong."""
    model = checkpoint.model.config
    with errors_name(checkpoint.path):
        tokenizer = Tokenizer.from_state(checkpoint.tokenizer)
        tokenizer.check_vocabulary_sizes(model.source_vocab_size, model.target_vocab_size)
        search = typed(SearchConfig, checkpoint.config["decoding"], "decoding")
        return Trained(tokenizer, search, Aligner.trained(checkpoint.config["loss"], model))
