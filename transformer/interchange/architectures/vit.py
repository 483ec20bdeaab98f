"""An encoder of ViT of transformers as the encoder of a new model, whose decoder is to be trained.

Its folder has ``config.json``, weights of ViTModel or ViTForImageClassification, whose head is left
out, and ``preprocessor_config.json``. Source: Dosovitskiy et al. 2021, section 3.1; transformers 5,
``models/vit``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from transformer.common.errors import InputError, raise_objections
from transformer.common.schema import Range, typed
from transformer.data.tokenization.file_vocabulary import Utf8Bytes, read_vocabulary
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.data.tokenization.vector_source import model_of_vectors
from transformer.interchange.files import read_mapping
from transformer.model.build import build_transformer
from transformer.settings.commands import ImportConfig
from transformer.settings.model import ActivationName, ModelConfig
from transformer.settings.sources import ImageConfig, SourceConfig
from transformer.settings.tokenizer import PAD, TokenizerConfig

_Size = int | tuple[int, int]

_ACTIVATIONS: dict[str, ActivationName] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}

_PARTS = {
    "attention.query": ("attention.attention.query", "attention.q_proj"),
    "attention.key": ("attention.attention.key", "attention.k_proj"),
    "attention.value": ("attention.attention.value", "attention.v_proj"),
    "attention.output": ("attention.output.dense", "attention.o_proj"),
    "attention_residual.norm": ("layernorm_before",),
    "feed_forward.inner": ("intermediate.dense", "mlp.fc1"),
    "feed_forward.outer": ("output.dense", "mlp.fc2"),
    "feed_forward_residual.norm": ("layernorm_after",),
}
"""Our modules of a layer, and their names in the published folders and in transformers 5."""

_BILINEAR = 2

_PREPROCESSOR = "preprocessor_config.json"


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """The values of a ``config.json`` that decide what an encoder computes."""

    hidden_size: Annotated[int, Range(1, 2**16)]
    num_hidden_layers: Annotated[int, Range(1, 1000)]
    num_attention_heads: Annotated[int, Range(1, 2**16)]
    intermediate_size: Annotated[int, Range(1, 2**20)]
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    layer_norm_eps: float = 1e-12
    image_size: _Size = 224
    patch_size: _Size = 16
    num_channels: Literal[1, 3] = 3

    def __post_init__(self) -> None:
        if self.hidden_act not in _ACTIVATIONS:
            raise InputError(
                f"config.json.hidden_act={self.hidden_act} cannot be imported, only "
                f"{' or '.join(_ACTIVATIONS)}"
            )


class NewModel(NamedTuple):
    """A model whose encoder is imported, its tokenizer and its weights."""

    model: ModelConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]


def import_encoder(folder: Path, weights: Mapping[str, Tensor], config: ImportConfig) -> NewModel:
    """The model of a folder and of the keys of its decoder; InputError if it cannot be imported."""
    values = read_mapping(folder / "config.json")
    known = {key: values[key] for key in ViTConfig.__dataclass_fields__ if key in values}
    theirs = typed(ViTConfig, known, "config.json")
    image = _image(theirs)
    algorithm: Any = "bytes"
    if config.tokenizer is not None:
        algorithm = "huggingface" if config.tokenizer.suffix == ".json" else "sentencepiece"
    file = None if config.tokenizer is None else str(config.tokenizer)
    reading = TokenizerConfig(
        algorithm=algorithm, source="image", vocab_size=None, joint=False, file=file
    )
    source = model_of_vectors(SourceConfig("image", image=image))
    written = Utf8Bytes.BYTES_ALONE if algorithm == "bytes" else read_vocabulary(reading, 1)
    tokenizer = Tokenizer(reading, source, written)
    patches = (image.height // image.patch_height) * ((image.width or 0) // image.patch_width)
    model = ModelConfig(
        pad=PAD,
        front_end="patches",
        class_token=True,
        max_source_length=1 + patches,
        d_model=theirs.hidden_size,
        num_heads=theirs.num_attention_heads,
        ffn_dim=theirs.intermediate_size,
        encoder_layers=theirs.num_hidden_layers,
        decoder_layers=config.decoder_layers,
        dropout=theirs.hidden_dropout_prob,
        attention_dropout=theirs.attention_probs_dropout_prob,
        norm_epsilon=theirs.layer_norm_eps,
        positions="learned",
        activation=_ACTIVATIONS[theirs.hidden_act],
        scale_embedding=False,
        tie_embeddings="decoder",
    ).sized(tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(config.seed)
        ours = dict(build_transformer(model).state_dict())
    ours |= _encoder_weights(weights, model, image, _channels(folder, theirs))
    return NewModel(model, tokenizer, ours)


def _image(config: ViTConfig) -> ImageConfig:
    height, width = _pair(config.image_size)
    patch_height, patch_width = _pair(config.patch_size)
    return ImageConfig(
        height=height,
        width=width,
        channels=config.num_channels,
        patch_height=patch_height,
        patch_width=patch_width,
    )


def _pair(size: _Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _channels(folder: Path, config: ViTConfig) -> tuple[Tensor, Tensor]:
    """The mean and the deviation of each channel that pictures are normalized with there."""
    values = read_mapping(folder / _PREPROCESSOR, optional=True)
    size = values.get("size", config.image_size)
    if isinstance(size, Mapping):
        size = (size.get("height"), size.get("width"))
    size = tuple(size) if isinstance(size, list | tuple) else (size, size)
    height, width = _pair(config.image_size)
    raise_objections(
        f"{_PREPROCESSOR}: {name} cannot be imported; correct it, or use another model"
        for name, holds in {
            f"size={size} of a model of {height} × {width}": size == (height, width),
            "do_rescale=false": values.get("do_rescale", True),
            "resample, other than bilinear,": values.get("resample", _BILINEAR) == _BILINEAR,
            "rescale_factor, other than 1/255,": abs(
                255 * values.get("rescale_factor", 1 / 255) - 1
            )
            < 1e-6,
            "do_center_crop": not values.get("do_center_crop"),
        }.items()
        if not holds
    )
    channels = config.num_channels
    normalized = values.get("do_normalize", True)
    mean = values.get("image_mean", [0.5] * channels) if normalized else [0.0] * channels
    std = values.get("image_std", [0.5] * channels) if normalized else [1.0] * channels
    tensors = torch.tensor(mean).double(), torch.tensor(std).double()
    if any(len(tensor) != channels for tensor in tensors):
        raise InputError(f"{_PREPROCESSOR}: image_mean and image_std must have {channels} numbers")
    return tensors


def _encoder_weights(
    weights: Mapping[str, Tensor],
    model: ModelConfig,
    image: ImageConfig,
    channels: tuple[Tensor, Tensor],
) -> dict[str, Tensor]:
    """The weights of the front end and the encoder; InputError if one is missing or misshapen."""
    named = {name.removeprefix("vit."): weight for name, weight in weights.items()}
    width = model.d_model

    def take(names: tuple[str, ...], *shape: int) -> Tensor:
        name = next((name for name in names if name in named), names[0])
        actual = tuple(named[name].shape) if name in named else "no tensor"
        if actual != shape:
            raise InputError(f"the tensor {name} must have the shape {shape}, not {actual}")
        return named[name].float()

    patch = (image.channels, image.patch_height, image.patch_width)
    projection = "embeddings.patch_embeddings.projection"
    kernel = take((f"{projection}.weight",), width, *patch).double()
    bias = take((f"{projection}.bias",), width).double()
    # Ours are pixels (p - 0.5) / 0.5, theirs (p - mean) / std of each channel.
    mean, std = channels
    bias = bias + torch.einsum("wchx,c->w", kernel, (image.mean - mean) / std)
    kernel = kernel * (image.std / std)[:, None, None]
    ours = {
        # width channel tall wide -> width (tall wide channel)
        "source_embedding.front_end.linear.weight": kernel.permute(0, 2, 3, 1).flatten(1).float(),
        "source_embedding.front_end.linear.bias": bias.float(),
        "source_embedding.front_end.class_token": take(
            ("embeddings.cls_token",), 1, 1, width
        ).flatten(),
        "source_embedding.positions.table": take(
            ("embeddings.position_embeddings",), 1, model.source_positions, width
        )[0],
    }
    for part in ("weight", "bias"):
        ours[f"encoder.final_norm.{part}"] = take((f"layernorm.{part}",), width)
    for layer in range(model.encoder_layers):
        for ours_name, names in _PARTS.items():
            rows = model.ffn_dim if ours_name == "feed_forward.inner" else width
            columns = model.ffn_dim if ours_name == "feed_forward.outer" else width
            shape = (rows,) if ours_name.endswith("norm") else (rows, columns)
            theirs = [
                f"{stem}.{layer}.{name}" for name in names for stem in ("encoder.layer", "layers")
            ]
            where = f"encoder.layers.{layer}.{ours_name}"
            ours[f"{where}.weight"] = take(tuple(f"{name}.weight" for name in theirs), *shape)
            biases = tuple(f"{name}.bias" for name in theirs)
            # Without qkv_bias there is none.
            is_projection = ours_name in ("attention.query", "attention.key", "attention.value")
            if is_projection and not any(name in named for name in biases):
                ours[f"{where}.bias"] = torch.zeros(rows)
            else:
                ours[f"{where}.bias"] = take(biases, rows)
    return ours
