"""The translator that the arguments of a verb name: checkpoint, device and search."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.models import load_checkpoint_model, load_checkpoints
from transformer.common.errors import InputError
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tags import SourceTags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.translation.trained import Aligner, trained_with
from transformer.decoding.translation.translator import Translator
from transformer.model.heads import HeadName, head_name


def load_translator(
    config: DictConfig, arguments: Sequence[str]
) -> tuple[Translator, dict[str, Any]]:
    """The translator, and the config of the run that trained it.

    Raises:
        InputError: The checkpoint cannot be read, the device or a head does not exist, or the
            search is wrong.
    """
    checkpoints = load_checkpoints(config.checkpoint)
    trained = trained_with(checkpoints[0])
    composed: Any = OmegaConf.to_container(config.decoding)
    search = resolve_search(arguments, composed, asdict(trained.search))
    model = load_checkpoint_model(config, checkpoints)
    translator = Translator(
        model,
        tagged_tokenizer(config, trained.tokenizer),
        search,
        batch_tokens=resolve_positive(config, "batch_tokens"),
        device=next(model.parameters()).device,
        aligner=_aligner(config, arguments, trained.aligner),
        coverage_head=trained.aligner.head,
    )
    return translator, checkpoints[0].config


def tagged_tokenizer(config: DictConfig, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with ``to=`` and ``tag=`` as the tags of a source that has none itself.

    Raises:
        InputError: The model has no such tag.
    """
    # Not every verb has the keys.
    given = (typed_value(config.get(key), str | None, key) for key in ("to", "tag"))
    return tokenizer.tagged(SourceTags(*given))


def resolve_search(
    arguments: Sequence[str], composed: Mapping[str, Any], trained: Mapping[str, Any]
) -> SearchConfig:
    """``decoding=NAME`` takes the composed search, ``decoding.KEY=`` changes the run's own.

    Raises:
        InputError: The values make no search.
    """
    keys = [argument.partition("=")[0] for argument in arguments]
    if "decoding" in keys:
        return typed(SearchConfig, composed, "decoding")
    changed = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    values = {**trained, **{key: composed[key] for key in changed}}
    if values["algorithm"] == "greedy" and {"algorithm", "beam_size"} & changed == {"beam_size"}:
        # A run that was tuned to greedy search, say.
        values["algorithm"] = "beam"
    return typed(SearchConfig, values, "decoding")


def _aligner(config: DictConfig, arguments: Sequence[str], aligner: Aligner) -> Aligner:
    """With the head that the user names, else as it was trained."""
    named = _named_head(arguments)
    if named not in (None, aligner.head):
        aligner = Aligner(named)
    # Not every verb has the key.
    if (threshold := config.get("alignment_threshold")) is not None:
        near_best = typed_value(threshold, float, "alignment_threshold")
        aligner = replace(aligner, near_best=near_best)
    return aligner


def _named_head(arguments: Sequence[str]) -> HeadName | None:
    """``alignment_head=LAYER.HEAD`` as it was typed: the config would take 2.10 for 2.1."""
    for argument in reversed(arguments):
        key, _, value = argument.partition("=")
        if key == "alignment_head" and value != "null":
            named = head_name("cross." + value.strip("\"'"))
            if named is None:
                raise InputError(
                    f"alignment_head={value} is not a head; write LAYER.HEAD, such as 2.0"
                )
            return named
    return None


def resolve_positive(config: DictConfig, key: str, minimum: int = 1) -> int:
    """A whole number.

    Raises:
        InputError: It is another value, or below the minimum.
    """
    number: int = typed_value(config[key], int, key)
    if number < minimum:
        raise InputError(f"{key}={number} must be at least {minimum}")
    return number
