"""Options that doctor, clean and text share: the text, its splits, the tokenizer, the checks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import resolve_path
from transformer.cli.train.vocabulary import names_size, with_largest
from transformer.common.cache import locked
from transformer.common.errors import InputError, raise_objections
from transformer.common.files import given_path
from transformer.common.schema import typed, typed_value
from transformer.data.config import DataConfig
from transformer.data.corpora.resolve import Split
from transformer.data.quality.config import ExaminationConfig
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from transformer.model.checkpoint.checkpoint import PORTABLE, read_payload
from transformer.model.checkpoint.locate import find_checkpoint


def data_config(config: DictConfig) -> DataConfig:
    """Return the config of the corpus.

    Raises:
        InputError: A value has the wrong type, there are several corpora, or there is a stream.
    """
    values: Any = OmegaConf.to_container(config.data)
    data = typed(DataConfig, values, "data")
    refused = {
        "data.corpora is for training; give one corpus, as data=files data.train=… data.source=… "
        "data.target=…": data.corpora,
        "data.streaming is for training; set data.streaming=false, and data.train=FILE": (
            data.streaming
        ),
    }
    raise_objections(message for message, given in refused.items() if given)
    return data


def split_names(config: DictConfig, known: Iterable[str]) -> Sequence[str]:
    """Return the names in ``splits=``; null, where the verb allows it, are all.

    Raises:
        InputError: There is none, or one is unknown.
    """
    values: Any = OmegaConf.to_container(config)
    known = list(known)
    names: Sequence[str] | None = typed_value(values["splits"], Sequence[str] | None, "splits")
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"splits={unknown} must name some of {', '.join(known)}")
    return names


def examination_config(
    config: DictConfig, data: DataConfig, checks: Iterable[str], examples: int
) -> ExaminationConfig:
    """Return which checks run, and their settings.

    Raises:
        InputError: A value has the wrong type or is out of range.
    """
    return ExaminationConfig(
        checks=frozenset(checks),
        examples=examples,
        ratio=typed_value(config.ratio, float, "ratio"),
        max_length=data.max_length,
        languages=(data.source, data.target),
    )


def build_tokenizer(
    config: DictConfig, splits: Mapping[str, Split], cache: str, arguments: Sequence[str]
) -> Tokenizer | None:
    """Return the tokenizer of ``checkpoint=``, or learn that of ``tokenizer=``; None without both.

    Raises:
        InputError: Both are given, or the tokenizer cannot be read or learnt.
    """
    chosen = config.get("tokenizer")
    if config.checkpoint is not None:
        if chosen is not None:
            raise InputError("checkpoint= has a tokenizer; leave tokenizer= out")

        payload = read_payload(find_checkpoint(resolve_path(config, "checkpoint")))
        # The text has no tags, even if the model needs some.
        return Tokenizer.from_state(payload[PORTABLE]["tokenizer"]).with_tags(Tags())
    if chosen is None:
        return None

    folder, train = given_path(cache), splits["train"]

    def learn() -> Tokenizer:
        values: Any = OmegaConf.to_container(config.tokenizer)
        settings = typed(TokenizerConfig, values, "tokenizer")
        content = train.fingerprint(folder)
        return Tokenizer.train(settings, train.__iter__, folder, content, train.location)

    with locked(folder):
        return learn() if names_size(arguments) else with_largest(config, learn)
