"""The model or translator that the arguments of a verb name: checkpoints, device and search."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf

from transformer.checkpoint import locate
from transformer.checkpoint.checkpoint import Checkpoint
from transformer.checkpoint.exported import load_model
from transformer.cli.config.compose import resolve_positive, resolve_value
from transformer.cli.threads import set_search_threads
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tags import SourceTags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner
from transformer.decoding.search.ensemble import Averaging, Ensemble, Model
from transformer.decoding.search.shortlist import with_shortlist_of
from transformer.decoding.translation.translator import Translator, trained_with
from transformer.model.head_masks import head_name, parse_heads, switch_off
from transformer.model.layers.quantization import in_precision
from transformer.settings.decoding import OnFailure, SearchConfig
from transformer.settings.model import Precision

CPU_TOKENS, GPU_TOKENS = 4096, 65_536
"""Padded source tokens of a batch, counted once a hypothesis."""


def load_translator(
    config: DictConfig, arguments: Sequence[str]
) -> tuple[Translator, dict[str, Any]]:
    """The translator, and the config of the run that trained it."""
    checkpoints = load_checkpoints(config.checkpoint)
    trained = trained_with(checkpoints[0])
    composed: Any = OmegaConf.to_container(config.decoding)
    search = resolve_search(arguments, composed, asdict(trained.search))
    search = with_shortlist_of(search, checkpoint_paths(config.checkpoint)[0])
    model = load_checkpoint_model(config, checkpoints)
    device = next(model.parameters()).device
    translator = Translator(
        model,
        tagged_tokenizer(config, trained.tokenizer),
        search,
        batch_tokens=resolve_batch_tokens(config, device),
        device=device,
        aligner=_aligner(config, arguments, trained.aligner),
        coverage_head=trained.aligner.head,
        limits=trained.limits,
    )
    return translator, checkpoints[0].config


def with_flags(
    config: DictConfig, translator: Translator, run: Mapping[str, Any], on_failure: OnFailure | None
) -> Translator:
    """The translator whose translations have flags."""
    from transformer.quality.failures.flagging import FlaggingTranslator
    from transformer.quality.failures.flags import Detector
    from transformer.settings.data import DataConfig

    detector = Detector.load(
        checkpoint_paths(config.checkpoint)[0], typed(DataConfig, run["data"], "data")
    )
    return FlaggingTranslator(translator, detector, on_failure)


def load_checkpoints(names: Any) -> list[Checkpoint]:
    """``checkpoint=PATH``, or ``checkpoint=[PATH,…]`` of one vocabulary."""
    first, *more = checkpoints = [_load(path) for path in checkpoint_paths(names)]
    set_search_threads(weight for one in checkpoints for weight in one.model.parameters())
    vocabulary = Tokenizer.from_state(first.tokenizer).fingerprint
    for other in more:
        if Tokenizer.from_state(other.tokenizer).fingerprint != vocabulary:
            raise InputError(
                f"{other.path} has another vocabulary than {first.path}; an ensemble needs models "
                "that were trained with the same tokenizer"
            )
    return checkpoints


def checkpoint_paths(names: Any) -> list[Path]:
    """The value of ``checkpoint``: one path or several."""
    return [given_path(str(name)) for name in (names if isinstance(names, ListConfig) else [names])]


def resolve_file(path: Path) -> Path:
    """The checkpoint file that a path means, or the folder of ``export``."""
    return path if locate.is_exported(path) else locate.find_checkpoint(path)


def _load(path: Path) -> Checkpoint:
    if locate.is_ctranslate2(path):
        from transformer.interchange.ctranslate2 import read_ctranslate2

        return read_ctranslate2(path)
    return load_model(path)


def load_checkpoint_model(config: DictConfig, checkpoints: Sequence[Checkpoint]) -> Model:
    """The model of these checkpoints on its device, by those keys that the verb has."""
    device = resolve_device(config.get("device", "cpu"))
    precision = resolve_precision(config, device)
    names = config.get("heads_off")
    given = names if isinstance(names, ListConfig) else [] if names is None else [names]
    for checkpoint in checkpoints:
        if locate.is_ctranslate2(checkpoint.path) and device.type != "meta":
            raise InputError(f"{checkpoint.path} {locate.ENGINE_EXPORT}")
        switch_off(checkpoint.model, parse_heads(checkpoint.model, map(str, given)))
    models = [checkpoint.model for checkpoint in checkpoints]
    # What only computes has this key; what reads or writes weights needs them as they are.
    if "precision" in config:
        models = [in_precision(model, precision, device) for model in models]
    else:
        models = [model.float() for model in models]
    models = [model.to(device) for model in models]
    averaging = resolve_value(config, "averaging", Averaging | None)
    if len(models) > 1:
        return Ensemble(models, averaging or "probability")
    if averaging is not None:
        raise InputError(f"averaging={averaging} is of ensembles: checkpoint=[PATH,PATH]")
    return models[0]


def resolve_device(name: Any) -> torch.device:
    """The device of that name; ``cuda`` is the GPU of this process among several."""
    name = typed_value(name, str, "device")
    try:
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if name == "cuda" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device={name} cannot be used here: {reason}") from error
    return device


def resolve_precision(config: DictConfig, device: torch.device) -> Precision:
    """``precision``; null is bfloat16 on a GPU that has it, else float32."""
    named: Precision | None = resolve_value(config, "precision", Precision | None, "float32")
    if named is not None:
        return named
    on_gpu = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if on_gpu else "float32"


def resolve_batch_tokens(config: DictConfig, device: torch.device) -> int:
    """``batch_tokens``; null is what keeps the device busy."""
    if config.batch_tokens is None:
        return GPU_TOKENS if device.type == "cuda" else CPU_TOKENS
    return resolve_positive(config, "batch_tokens")


def tagged_tokenizer(config: DictConfig, tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with ``to=``, ``tag=`` and ``from=`` as the tags of a source without any."""
    given = (resolve_value(config, key, str | None) for key in ("to", "tag", "from"))
    return tokenizer.tagged(SourceTags(*given))


def resolve_search(
    arguments: Sequence[str], composed: Mapping[str, Any], trained: Mapping[str, Any]
) -> SearchConfig:
    """``decoding=NAME`` takes the composed search, ``decoding.KEY=`` changes the run's own.

    Limits of the length stay those of the run: they depend on the text, not on the search.
    """
    keys = [argument.partition("=")[0] for argument in arguments]
    changed = {key.removeprefix("decoding.") for key in keys if key.startswith("decoding.")}
    if "decoding" in keys:
        limits = {"max_length_ratio", "max_length_offset"} - changed
        values = {**composed, **{key: trained[key] for key in limits}}
    else:
        values = {**trained, **{key: composed[key] for key in changed}}
        beam = {"algorithm", "beam_size"} & changed == {"beam_size"}
        if beam and values["algorithm"] == "greedy":  # of a run that was tuned to greedy search
            values["algorithm"] = "beam"
    return typed(SearchConfig, values, "decoding")


def _aligner(config: DictConfig, arguments: Sequence[str], aligner: Aligner) -> Aligner:
    # As it was typed: the config would take 2.10 for 2.1.
    pairs = (argument.partition("=")[::2] for argument in arguments)
    value = {"alignment_head": "null", **dict(pairs)}["alignment_head"]
    if value != "null":
        named = head_name("cross." + value.strip("\"'"))
        if named is None:
            raise InputError(f"alignment_head={value} is not a head; write LAYER.HEAD, such as 2.0")
        aligner = aligner if named == aligner.head else Aligner(named)
    threshold = resolve_value(config, "alignment_threshold", float | None)
    return aligner if threshold is None else replace(aligner, near_best=threshold)
