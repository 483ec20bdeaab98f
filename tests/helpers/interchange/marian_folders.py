"""Marian folders of Hugging Face with random weights, and vocabularies of the pocket text."""

import gzip
import json
import random
import re
import shutil
from functools import cache
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
import yaml
from safetensors.torch import load_file

from tests.helpers.lazy import hf
from transformer.data.corpora.resolve import pocket_text


def sentences(language: str, split: str = "train", count: int = 2000) -> list[str]:
    """The first sentences of the pocket text."""
    with gzip.open(pocket_text(language)[split], "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for line in islice(lines, count)]


@cache
def pieces(
    languages: str, kind: str = "unigram", byte_fallback: bool = False, spm: bool = False
) -> bytes:
    """A SentencePiece model of one language, as OPUS-MT trains them, or of several."""
    model, text = BytesIO(), list(map(sentences, languages.split()))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=chain.from_iterable(text),
        model_writer=model,
        vocab_size=300 + 100 * len(text) + 256 * byte_fallback,
        model_type=kind,
        byte_fallback=byte_fallback,
        num_threads=1,
        minloglevel=2,
        **({"bos_id": -1, "eos_id": 0, "unk_id": 1} if spm else {}),
    )
    return model.getvalue()


SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "max_position_embeddings": 128,
    **{f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_dim": 48 for stack in ("encoder", "decoder")},
}


def randomize(model: Any) -> None:
    """Draw all weights but positions."""
    for name, weight in model.named_parameters():
        if "layer_norm" in name:
            weight.add_(torch.randn_like(weight) * 0.1)
        elif "embed_positions" not in name:
            weight.copy_(torch.randn_like(weight) * (0.25 if weight.dim() == 2 else 0.1))


def _write_vocabularies(
    folder: Path,
    sides: dict[str, bytes],
    separate: bool,
    codes: tuple[str, ...],
    missing: int,
) -> list[int]:
    """The sizes; with ``missing`` pieces, the ids are in a random order."""
    drawn = random.Random(1)
    kept: dict[str, list[str]] = {}
    for side, model in sides.items():
        (folder / f"{side}.spm").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        names = [processor.id_to_piece(i) for i in range(len(processor))]
        names = [name for name in names if name not in ("<unk>", "<s>", "</s>")]
        kept[side] = drawn.sample(names, len(names) - missing) if missing else names
    wrapped = [f">>{code}<<" for code in codes]
    files = {"vocab.json": [*kept["source"], *kept["target"], *wrapped]}
    if separate:
        files = {
            "vocab.json": [*kept["source"], *wrapped],
            "target_vocab.json": kept["target"],
        }
    sizes = []
    for name, names in files.items():
        names = list(dict.fromkeys(names))
        if missing:
            drawn.shuffle(names)
        ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", *names, "<pad>"])}
        (folder / name).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        sizes.append(len(ids))
    return sizes


def marian_folder(
    folder: Path,
    *,
    separate: bool = False,
    codes: tuple[str, ...] = (),
    half: bool = False,
    kind: str = "unigram",
    byte_fallback: bool = False,
    spm: bool = False,
    **changes: Any,
) -> Path:
    """Write a folder: seven pieces of each side are not in the vocabulary.

    With ``spm``, the ids are those of one SentencePiece model, as Marian itself trains it.
    """
    folder.mkdir(parents=True)
    languages = {"source": "en", "target": "en" if spm else "de"}
    sides = {side: pieces(one, kind, byte_fallback, spm) for side, one in languages.items()}
    sizes = _write_vocabularies(folder, sides, separate, codes, 0 if spm else 7)
    values: dict[str, Any] = {
        **SIZES,
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[-1],
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": sizes[0] - 1,
        "eos_token_id": 0,
        "bos_token_id": 0,
        "forced_eos_token_id": 0,
        "decoder_start_token_id": sizes[-1] - 1,
        "share_encoder_decoder_embeddings": not separate,
        "num_beams": 4,
    }
    torch.manual_seed(1)
    model = hf.MarianMTModel(hf.MarianConfig(**values | changes)).eval()
    with torch.no_grad():
        randomize(model)
        for stack in (model.model.encoder, model.model.decoder):
            stack.embed_tokens.weight[-1] = 0
        model.final_logits_bias[0, :-1] = torch.randn(sizes[-1] - 1) * 0.5
        # A random model would hardly ever end.
        model.final_logits_bias[0, 0] = 3.0
    if half:
        state = {n: w for n, w in model.half().state_dict().items() if "embed_positions" not in n}
        # The form of torch before 1.6.
        file = folder / "pytorch_model.bin"
        torch.save(state, file, _use_new_zipfile_serialization=False)
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
    else:
        model.save_pretrained(folder)
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": separate,
        "model_max_length": 512,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


_NPZ = (
    ("model.", ""),
    (".layers.", "_l"),
    (".self_attn_layer_norm", "_self_Wo_ln"),
    (".encoder_attn_layer_norm", "_context_Wo_ln"),
    (".final_layer_norm", "_ffn_ffn_ln"),
    (".self_attn.", "_self_"),
    (".encoder_attn.", "_context_"),
    (".fc", "_ffn_"),
)


def npz_folder(folder: Path, source: Path, spm: bool = False, **settings: Any) -> Path:
    """Write the model of a Marian folder as Marian itself does; ``settings`` change its own.

    With ``spm``, SentencePiece gives the ids.
    """
    folder.mkdir()
    values = json.loads((source / "config.json").read_text())
    arrays = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if name == "final_logits_bias":
            arrays["decoder_ff_logit_out_b"] = tensor[:, :-1].numpy()
        elif name == "model.shared.weight":
            arrays["Wemb"] = tensor[:-1].numpy()
        elif name.endswith("embed_tokens.weight"):
            arrays[f"{name.split('.')[1]}_Wemb"] = tensor[:-1].numpy()
        else:
            stem, _, kind = name.rpartition(".")
            for before, after in _NPZ:
                stem = stem.replace(before, after)
            stem = re.sub(r"_l(\d+)", lambda found: f"_l{int(found[1]) + 1}", stem)
            if stem.endswith("_ln"):
                stem += "_scale" if kind == "weight" else "_bias"
            else:
                head, _, last = stem.removesuffix("_proj").rpartition("_")
                stem = f"{head}_{'W' if kind == 'weight' else 'b'}{last[0]}"
            arrays[stem] = tensor.T.numpy() if tensor.dim() == 2 else tensor[None].numpy()
    text = yaml.safe_dump(
        {
            "type": "transformer",
            "dim-emb": values["d_model"],
            "enc-depth": values["encoder_layers"],
            "dec-depth": values["decoder_layers"],
            "transformer-heads": values["encoder_attention_heads"],
            "transformer-dim-ffn": values["encoder_ffn_dim"],
            "transformer-ffn-activation": values["activation_function"],
            "transformer-preprocess": "",
            "transformer-postprocess": "dan",
            "transformer-postprocess-emb": "d",
            "transformer-decoder-autoreg": "self-attention",
            "transformer-no-projection": False,
            "transformer-guided-alignment-layer": "last",
            "right-left": False,
            **settings,
        }
    )
    arrays["special:model.yml"] = np.frombuffer(text.encode() + b"\0", np.int8)
    np.savez(folder / "model.npz", **arrays)
    names = ["opus.src.vocab.yml", "opus.trg.vocab.yml"]
    files = ["vocab.json", "target_vocab.json"]
    if not (source / files[1]).is_file():
        names, files = ["opus.vocab.yml"] * 2, files[:1] * 2
    for side, name, file in zip(("source", "target"), names, files, strict=True):
        shutil.copy(source / f"{side}.spm", folder)
        ids = json.loads((source / file).read_text())
        text = yaml.safe_dump(
            {piece: ids[piece] for piece in ids if piece != "<pad>"}, allow_unicode=True
        )
        (folder / name).write_text(text, encoding="utf-8")
    names = ["source.spm", "target.spm"] if spm else names
    decoder = {"models": ["model.npz"], "vocabs": names, "beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder | {"relative-paths": True}))
    return folder


def change_json(file: Path, **values: Any) -> None:
    """Change values of the object in a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
