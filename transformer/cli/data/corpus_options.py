"""Options that doctor, clean and text share: the text, its splits, the tokenizer, the checks."""

from collections.abc import Iterable, Mapping, Sequence

from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.locate import find_checkpoint
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.train.vocabulary import names_size, with_largest
from transformer.common.cache import locked
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.corpora.split import Split
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.quality.check import ExaminationConfig
from transformer.settings.data import DataConfig
from transformer.settings.tokenizer import TokenizerConfig


def data_config(config: DictConfig) -> DataConfig:
    """The config of the corpus, which is one and no stream."""
    data: DataConfig = resolve_value(config, "data", DataConfig)
    if data.corpora or data.streaming:
        raise InputError(
            "data.corpora and data.streaming are for training; give one corpus, as data=files "
            "data.train=… data.source=… data.target=…"
        )
    return data


def split_names(config: DictConfig, known: Iterable[str]) -> Sequence[str]:
    """The names in ``splits=``, which must be known; null, where the verb allows it, are all."""
    known = list(known)
    names: Sequence[str] | None = resolve_value(config, "splits", Sequence[str] | None)
    if names is None:
        return known
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"splits={unknown} must name some of {', '.join(known)}")
    return names


def examination_config(
    config: DictConfig, data: DataConfig, checks: Iterable[str], examples: int
) -> ExaminationConfig:
    """Which checks run, and their settings; without a ratio of lengths, they tell no shift."""
    lengths_tell = data.max_ratio is not None
    return ExaminationConfig(
        checks=frozenset(name for name in checks if lengths_tell or name != "misaligned"),
        examples=examples,
        ratio=resolve_value(config, "ratio", float),
        max_length=data.max_length,
        languages=(data.source, data.target),
    )


def build_tokenizer(
    config: DictConfig, splits: Mapping[str, Split], cache: str, arguments: Sequence[str]
) -> Tokenizer | None:
    """The tokenizer of ``checkpoint=``, or a new one of ``tokenizer=``; None without both."""
    chosen = config.get("tokenizer")
    if config.checkpoint is not None:
        if chosen is not None:
            raise InputError("checkpoint= has a tokenizer; leave tokenizer= out")
        payload = read_payload(find_checkpoint(resolve_path(config, "checkpoint")))
        # The text has no tags, even if the model needs some.
        return Tokenizer.from_state(portable_part(payload).tokenizer).with_tags(Tags())
    if chosen is None:
        return None
    folder, train = given_path(cache), splits["train"]

    def learn() -> Tokenizer:
        settings = resolve_value(config, "tokenizer", TokenizerConfig)
        content = train.fingerprint(folder)
        return Tokenizer.train(settings, train.__iter__, folder, content, train.location)

    with locked(folder):
        return learn() if names_size(arguments) else with_largest(config, learn)
