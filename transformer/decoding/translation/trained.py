"""The settings of a checkpoint for translation: tokenizer, search, alignment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer.common.errors import InputError, errors_name
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.config import SearchConfig
from transformer.model.checkpoint.checkpoint import Checkpoint
from transformer.model.config import ModelConfig
from transformer.model.heads import HeadName


@dataclass(frozen=True)
class Aligner:
    """How links are read from the cross-attention.

    The defaults were chosen on the validation text of pocket; docs/alignment.md has the results.
    """

    head: HeadName | None = None
    """The head of the cross-attention; None averages all heads of the layers after the first, which
    is better there than any single layer or head without guidance."""
    near_best: float = 0.6
    """A target word is linked to each source word with at least this fraction of the best word's
    weight: a fertile word ("im" for "in the") has several links."""

    @classmethod
    def trained(cls, loss: Mapping[str, Any], config: ModelConfig) -> "Aligner":
        """The aligner of a run: the head that it guided, else the average.

        A guided head divides its weight evenly among several links.

        Raises:
            InputError: See ``guided_head``.
        """
        head = guided_head(loss, config)
        return cls() if head is None else cls(head, near_best=0.3)

    def check(self, config: ModelConfig) -> None:
        """Check that the model has the head.

        Raises:
            InputError: It has not, it is of another kind, or the threshold is out of range.
        """
        if self.head is not None:
            name = str(self.head).removeprefix("cross.")
            _check_head(self.head, config, f"alignment_head={name}")
        if not 0 < self.near_best <= 1:
            raise InputError(f"alignment_threshold={self.near_best} must be in (0, 1]")

    @property
    def signature(self) -> str:
        """How the links are found, in the style of sacreBLEU."""
        index = "mean" if self.head is None else f"{self.head.layer}.{self.head.head}"
        return f"head:{index}|threshold:{self.near_best}"


def _check_head(head: HeadName, config: ModelConfig, setting: str) -> None:
    layers, heads = config.decoder_layers, config.num_heads
    if head.kind != "cross" or head.layer not in range(layers) or head.head not in range(heads):
        raise InputError(
            f"{setting} is not there: the decoder has layers 0 to {layers - 1} of heads 0 to "
            f"{heads - 1}; write LAYER.HEAD"
        )


def guided_head(loss: Mapping[str, Any], config: ModelConfig) -> HeadName | None:
    """The head that learns the links in training, by a run's ``loss``; None if there is none.

    Raises:
        InputError: There is no such layer or head.
    """
    if not typed_value(loss.get("alignment_weight"), float, "loss.alignment_weight"):
        return None
    layer = typed_value(loss.get("alignment_layer"), int | None, "loss.alignment_layer")
    index = typed_value(loss.get("alignment_head"), int, "loss.alignment_head")
    head = HeadName("cross", max(0, config.decoder_layers - 2) if layer is None else layer, index)
    setting = f"loss.alignment_layer={head.layer} with loss.alignment_head={index}"
    _check_head(head, config, setting)
    return head


@dataclass(frozen=True)
class Trained:
    """The typed values of a checkpoint."""

    tokenizer: Tokenizer
    search: SearchConfig
    """The search of its run's validation, or the best that ``tune`` found."""
    aligner: Aligner


def trained_with(checkpoint: Checkpoint) -> Trained:
    """Read the settings of a checkpoint.

    Raises:
        InputError: A value has the wrong type, or contradicts the model.
    """
    model = checkpoint.model.config
    with errors_name(checkpoint.path):
        tokenizer = Tokenizer.from_state(checkpoint.tokenizer)
        tokenizer.check_vocabulary_sizes(model.source_vocab_size, model.target_vocab_size)
        search = typed(SearchConfig, checkpoint.config["decoding"], "decoding")
        return Trained(tokenizer, search, Aligner.trained(checkpoint.config["loss"], model))
