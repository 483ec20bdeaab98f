"""What doctor and clean read of their configs: the text, and the tokenizer that counts.

It does not know what is looked for in the text.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import resolve_path
from transformer.cli.train.vocabulary import names_size, with_largest
from transformer.common.errors import InputError
from transformer.common.files import given_path

if TYPE_CHECKING:
    from transformer.data.config import DataConfig
    from transformer.data.corpora.resolve import Split
    from transformer.data.tokenization.tokenizer import Tokenizer


def data_config(config: DictConfig, done: str = "examined") -> "DataConfig":
    """The corpus.

    Args:
        config: Of the call.
        done: What the verb does to it.

    Raises:
        InputError: A value has the wrong type, there are several corpora, or there is a stream.
    """
    from transformer.common.schema import typed
    from transformer.data.config import DataConfig

    values: Any = OmegaConf.to_container(config.data)
    data = typed(DataConfig, values, "data")
    if data.corpora:
        raise InputError(
            f"one corpus at a time is {done}; in place of data.corpora give each as "
            "data=files data.train=… data.source=… data.target=…"
        )
    if data.streaming:
        raise InputError(f"a stream is not {done}; set data.streaming=false, and data.train=FILE")
    return data


def build_tokenizer(
    config: DictConfig, splits: "Mapping[str, Split]", cache: str, arguments: Sequence[str]
) -> "Tokenizer | None":
    """The one of ``checkpoint=``, or that ``tokenizer=`` learns; None where neither is given.

    Raises:
        InputError: Both are given, or it cannot be read or learnt.
    """
    from transformer.common.schema import typed
    from transformer.data.tokenization.tags import Tags
    from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig

    chosen = config.get("tokenizer")
    if config.checkpoint is not None:
        if chosen is not None:
            raise InputError("checkpoint= has a tokenizer; leave tokenizer= out")
        from transformer.model.checkpoint.checkpoint import PORTABLE, read_payload
        from transformer.model.checkpoint.locate import find_checkpoint

        payload = read_payload(find_checkpoint(resolve_path(config, "checkpoint")))
        # The text has no tags, as a model may need: they are no tokens of it.
        return Tokenizer.from_state(payload[PORTABLE]["tokenizer"]).with_tags(Tags())
    if chosen is None:
        return None
    from transformer.common.cache import locked

    folder, train = given_path(cache), splits["train"]

    def learnt() -> Tokenizer:
        values: Any = OmegaConf.to_container(config.tokenizer)
        wanted = typed(TokenizerConfig, values, "tokenizer")
        content = train.fingerprint(folder)
        return Tokenizer.train(wanted, train.__iter__, folder, content, train.location)

    with locked(folder):
        return learnt() if names_size(arguments) else with_largest(config, learnt)
