"""``import``: a model of another framework becomes a run of ours.

Its folder is read (transformers, Marian, or our own ``export format=safetensors``), and a run with
a checkpoint is written. No code of the folder runs.
"""

import logging
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer.checkpoint.checkpoint import (
    PORTABLE,
    WEIGHTS_PREFIX,
    Portable,
    all_finite,
    portable_part,
    write_payload,
)
from transformer.checkpoint.exported import read_safetensors
from transformer.checkpoint.run_directory import write_config
from transformer.common.errors import (
    InputError,
    errors_name,
    raise_objections,
    readable,
    some_of,
)
from transformer.common.files import HUB, given_path, locked, new_folder, require_new
from transformer.common.hub import download, repository
from transformer.common.packages import require_package
from transformer.common.schema import typed, typed_value
from transformer.data.tokenization.tags import TRANSLATES_TO
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.architectures.architecture import model_settings, read_config
from transformer.interchange.architectures.npz import DECODER, read_npz
from transformer.interchange.architectures.subwords import ImportedTokenizer
from transformer.interchange.architectures.weights import import_weights, is_untied
from transformer.interchange.files import read_mapping
from transformer.settings.commands import ImportConfig
from transformer.settings.data import DataConfig
from transformer.settings.decoding import SearchConfig
from transformer.settings.model import ModelConfig
from transformer.settings.run import RunConfig, completed
from transformer.settings.sources import SourceConfig
from transformer.settings.tokenizer import EOS, PAD

log = logging.getLogger(__name__)


class Imported(NamedTuple):
    """The content of a folder of another framework; ``languages`` are source and target."""

    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    languages: tuple[str | None, ...]
    decoding: SearchConfig

    @property
    def source(self) -> SourceConfig | None:
        """How its files become vectors; None if it reads text."""
        return self.tokenizer.vector_source.config if self.tokenizer.reads_files else None


def import_model(config: ImportConfig) -> Path:
    """Write the run of a model of another framework; returns its directory.

    Raises InputError for a model that this framework does not have, and MissingFile for an unknown
    model of the Hub.
    """
    is_remote = config.checkpoint.startswith(HUB)
    if config.output is None:
        if not is_remote:
            raise InputError("output= names no folder for the run; give one")
        return _cached(config)
    output = given_path(config.output)
    require_new(output)
    folder = download(config.checkpoint) if is_remote else given_path(config.checkpoint)
    for split, names in (("validation", config.validation), ("test", config.test)):
        for file in [names] if isinstance(names, str) else names or ():
            if not given_path(file).is_file():
                raise InputError(f"{split}: {file}: no such file")
    _write_run(folder, output, config)
    return output


def _cached(config: ImportConfig) -> Path:
    """The run of a model of the Hub in the cache, imported at the first time."""
    folder = download(config.checkpoint)
    from huggingface_hub import cached_assets_path

    namespace = repository(config.checkpoint)[0]
    cache = cached_assets_path("transformer", namespace=namespace, subfolder=folder.name)
    output = cache / "run"
    with locked(cache):
        if not output.is_dir():
            _write_run(folder, output, config)
            log.warning("%s is imported as the run %s", config.checkpoint, output)
    return output


def _write_run(folder: Path, output: Path, config: ImportConfig) -> None:
    for package in ("google.protobuf", "safetensors"):
        require_package(package, "import", "huggingface")
    with errors_name(folder):
        # A folder of our own export has the whole config of its run.
        if "tokenizer" in read_mapping(folder / "config.json", optional=True):
            if config.languages or config.validation or config.test:
                raise InputError(
                    "languages=, validation= and test= have no effect: it holds the config of a "
                    "run; leave them out"
                )
            checkpoint = read_safetensors(folder)
            payload = _payload(checkpoint.portable, checkpoint.model.state_dict())
        else:
            imported = read_folder(folder, config)
            payload = imported_payload(imported, _run(config, imported))
    with new_folder(output) as part:
        (part / "checkpoints").mkdir()
        write_payload(payload, part / "checkpoints" / "best.ckpt")
        write_config(portable_part(payload).config, part)


def imported_payload(imported: Imported, config: RunConfig) -> dict[str, Any]:
    """The content of a checkpoint, with the config of a training run."""
    # The text of its training is unknown; it has learned all of its positions.
    longest_source = imported.model.max_length - 1
    if imported.source is not None:
        longest_source = imported.model.source_positions
    portable = Portable(config, imported.tokenizer.to_state(), longest_source)
    return _payload(portable, imported.weights)


def _payload(portable: Portable, weights: dict[str, Any]) -> dict[str, Any]:
    named = {f"{WEIGHTS_PREFIX}{name}": weight for name, weight in weights.items()}
    return {PORTABLE: portable.to_plain(), "state_dict": named}


def _run(config: ImportConfig, imported: Imported) -> RunConfig:
    languages = imported.languages
    if config.languages:
        languages = config.languages.rpartition("-")[::2]
        if not all(languages):
            raise InputError(
                f"languages={config.languages} must be SOURCE-TARGET, such as de-en or de-de"
            )
    source = languages[0] or "source"  # as data=files
    target = languages[1] or "target"
    vectors = imported.source
    files: dict[str, Any] = {}
    if vectors is not None:
        files = {
            "source_kind": vectors.kind,
            vectors.kind: getattr(vectors, vectors.kind),
            "max_length": max(DataConfig.max_length, imported.model.source_positions),
        }
    tags = imported.tokenizer.tags
    if tags.both_sides:
        if tags.speech is None:
            example = f"languages={'-'.join(tags.targets[:2])}, of source and target"
        else:
            example = f"languages={tags.targets[0]}-{tags.targets[0]}, of sound and text"
        for code, given in zip((source, target), languages, strict=True):
            if code not in tags.targets:
                wrong = f"{code} is no language of the model" if given else "languages= is missing"
                raise InputError(f"{wrong}; set {example}, among {some_of(tags.targets)}")
        if tags.speech is not None and target not in (source, TRANSLATES_TO):
            raise InputError(
                f"languages={config.languages}: the model writes speech down in its own language, "
                f"or translates it into {TRANSLATES_TO}; set languages={source}-{source} or "
                f"languages={source}-{TRANSLATES_TO}"
            )
    data = DataConfig(
        corpus="files",
        source=source,
        target=target,
        target_tag="both" if tags.both_sides else DataConfig.target_tag,
        validation=config.validation,
        test=config.test,
        **files,
    )
    return completed(RunConfig(data=data, model=imported.model, decoding=imported.decoding))


def read_folder(folder: Path, asked: ImportConfig | None = None) -> Imported:
    """The model of a folder of Marian itself, or of transformers.

    ``asked`` has what the new decoder of an encoder alone is.
    """
    if read_mapping(folder / "config.json", optional=True).get("model_type") == "vit":
        from transformer.interchange.architectures.vit import import_encoder

        new = import_encoder(folder, read_weights(folder), asked or ImportConfig(str(folder)))
        _check_finite(folder, new.weights)
        return Imported(*new, (None, None), SearchConfig())
    if asked is not None and asked.has_new_decoder:
        raise InputError(
            f"{folder}: a model with a decoder keeps it; leave out tokenizer=, decoder_layers= and "
            "seed=, which are of a ViT's new one"
        )
    languages: tuple[str | None, ...] = (None, None)
    if (folder / DECODER).is_file() and not (folder / "config.json").is_file():
        config, architecture, weights, vocabulary = read_npz(folder)
    else:
        values = read_mapping(folder / "config.json")
        values |= read_mapping(folder / "generation_config.json", optional=True)
        config, architecture = read_config(values)
        weights = read_weights(folder)
        if not any(name.startswith(architecture.prefix) for name in weights):
            # Saved without its output, as facebook/bart-large is.
            weights = {f"{architecture.prefix}{name}": weight for name, weight in weights.items()}
        vocabulary = architecture.files.import_tokenizer(folder, values.get("vocab_size"))
        _check_symbols(values, vocabulary, architecture.start)
        names = read_mapping(folder / "tokenizer_config.json", optional=True)
        keys = ("src", "tgt") if architecture.tags_both_sides else ("source", "target")
        languages = tuple(_code(names.get(f"{key}_lang")) for key in keys)
    settings = model_settings(config, architecture, untied=is_untied(weights, architecture))
    if settings["tie_embeddings"] not in architecture.has["tie_embeddings"]:
        raise InputError(f"{folder}: lm_head.weight is not that of the embeddings, as it must be")
    tokenizer = vocabulary.tokenizer
    model = typed(ModelConfig, settings | {"pad": PAD}, "model")
    model = model.sized(tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    ours = import_weights(weights, architecture, model, vocabulary.source, vocabulary.target)
    _check_finite(folder, ours)
    if "projection.bias" in ours:
        model = replace(model, output_bias=architecture.output_bias or "fixed")
    else:
        model = replace(model, output_bias=False)
    decoding = SearchConfig(
        beam_size=config.num_beams,
        length_penalty=config.length_penalty,
        # There a score is the mean of the log-probabilities of the tokens.
        length_penalty_form="average",
        no_repeat_ngram=config.no_repeat_ngram_size,
        # There the start counts.
        min_length=max(0, config.min_length - 1),
        # False, the default there, is a third rule: it ends by an estimate of the best score.
        stopping="full" if config.early_stopping is True else "exact",
    )
    return Imported(model, tokenizer, ours, languages, decoding)


def _check_finite(folder: Path, weights: Mapping[str, Tensor]) -> None:
    if not all(map(all_finite, weights.values())):
        raise InputError(f"{folder}: its weights hold NaN or infinity; use another model")


def _check_symbols(values: Mapping[str, Any], vocabulary: ImportedTokenizer, start: int) -> None:
    source = vocabulary.source
    target = vocabulary.target
    expected_ids = {
        "pad": source.rows[PAD] if source.padding is None else source.padding,
        "eos": target.rows[EOS],
        "decoder_start": target.rows[start],
    }
    objections = []
    for symbol, expected in expected_ids.items():
        key = f"{symbol}_token_id"
        value = values.get(key)
        if value not in (None, expected, [expected]):
            objections.append(
                f"{key}={str(value)[:20]} in config.json or generation_config.json must be "
                f"{expected}, as in the vocabulary"
            )
    raise_objections(objections)


def _code(name: Any) -> str | None:
    return name if isinstance(name, str) and re.fullmatch(r"[\w-]{1,20}", name) else None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, mapped into memory, from safetensors or torch files without code."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return _read_tensors(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            weight_map = read_mapping(index).get("weight_map")
            files = sorted(set(typed_value(weight_map, Mapping[str, str], str(index)).values()))
            if not files or any(file != Path(file.replace("\\", "/")).name for file in files):
                raise InputError(f"{index} must name files of its own folder")
            weights: dict[str, Tensor] = {}
            for file in files:
                weights |= _read_tensors(folder / file)
            return weights
    raise InputError(f"{folder} holds neither model.safetensors nor pytorch_model.bin")


def _read_tensors(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if file.suffix == ".safetensors":
        with readable(file, SafetensorError):
            return load_file(file)
    # Files of torch before 1.6 are no archives, and cannot be mapped.
    mapped = zipfile.is_zipfile(file)
    with readable(file, pickle.UnpicklingError), warnings.catch_warnings():
        # Before it refuses a pickle, torch warns of its protocol.
        warnings.simplefilter("ignore", UserWarning)
        tensors = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
        if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            raise ValueError("it holds more than tensors")
        return dict(tensors)
