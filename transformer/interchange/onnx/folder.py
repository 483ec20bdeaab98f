"""A folder for onnxruntime and transformers.js 4 (``modeling_utils.js``); greedy search."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.common.errors import InputError
from transformer.data.text.parallel import Referenced
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.translator import Translator
from transformer.interchange.files import read_mapping, write_json
from transformer.interchange.onnx.graphs import DECODER, ENCODER, SUFFIXES, write_graphs
from transformer.interchange.onnx.tokenizer_json import tokenizer_files
from transformer.interchange.verification import PLAIN, compare_texts
from transformer.settings.metrics import MetricsConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

TARGET = "target"
"""Folder of the tokenizer of the target, if it is another than that of the source."""


def write_onnx(translator: Translator, folder: Path, quantization: str) -> None:
    """Write graphs, tokenizer and configs; raises InputError for what they cannot express."""
    if quantization not in SUFFIXES:
        known = " or ".join(SUFFIXES)
        raise InputError(f"quantization={quantization} is not for ONNX; choose {known}")
    tokenizers = tokenizer_files(translator.tokenizer)
    for number, content in enumerate(tokenizers):
        side = folder / TARGET if number else folder
        side.mkdir(exist_ok=True)
        write_json(content, side / "tokenizer.json")
        names = {one["id"]: one["content"] for one in content["added_tokens"]}
        kinds = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
        settings = {f"{kind}_token": names[number] for kind, number in kinds.items()}
        settings["tokenizer_class"] = "PreTrainedTokenizer"
        write_json(settings, side / "tokenizer_config.json")
    write_json(_config(translator), folder / "config.json")
    (folder / "onnx").mkdir()
    write_graphs(translator, folder / "onnx", quantization)


def _config(translator: Translator) -> dict[str, Any]:
    config, search = translator.model.config, translator.search
    return {
        **{"architectures": ["MarianMTModel"], "model_type": "marian", "is_encoder_decoder": True},
        **{"d_model": config.d_model, "vocab_size": config.target_vocab_size},
        **{"encoder_layers": config.encoder_layers, "decoder_layers": config.decoder_layers},
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_kv_heads or config.num_heads,
        **{"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS},
        "decoder_start_token_id": BOS if config.decoder_start is None else config.decoder_start,
        # With the start, which has a position too.
        "max_length": max_subwords(translator.model) + 1,
        # transformers.js does not know these; the page of format=web does.
        "max_length_ratio": search.max_length_ratio,
        "max_length_offset": search.max_length_offset,
        "alignment_threshold": translator.aligner.near_best,
        "head_dim": config.d_k,
    }


class OnnxGreedy:
    """Greedy search with the files of a folder alone, one sentence at a time."""

    def __init__(self, folder: Path) -> None:
        import tokenizers
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.log_severity_level = 3
        self.encoder, self.decoder = (
            InferenceSession(next((folder / "onnx").glob(f"{name}*.onnx")), options)
            for name in (ENCODER, DECODER)
        )
        own = folder / TARGET if (folder / TARGET).is_dir() else folder
        self.source, self.target = (
            tokenizers.Tokenizer.from_file(str(side / "tokenizer.json")) for side in (folder, own)
        )
        self.settings = read_mapping(folder / "config.json")
        self.cache = self.decoder.get_inputs()[3:]

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Translate texts; a blank text has a blank translation."""
        return [str(self.target.decode(self.tokens(text))).replace("\n", " ") for text in texts]

    def tokens(self, text: str) -> list[int]:
        """The ids of a translation, without its end."""
        ids = self.source.encode(text).ids if text.strip() else []
        values = self.settings
        limit = int(values["max_length_ratio"] * (len(ids) - 1) + values["max_length_offset"])
        limit = min(max(1, limit), values["max_length"] - 1)
        return self._search(np.array([ids]), limit) if ids else []

    def _search(self, source: Any, limit: int) -> list[int]:
        seen = np.ones_like(source)
        [memory] = self.encoder.run(None, {"input_ids": source, "attention_mask": seen})
        fixed = {"encoder_attention_mask": seen, "encoder_hidden_states": memory}
        cache = [np.zeros((1, one.shape[1], 0, one.shape[3]), np.float32) for one in self.cache]
        found: list[int] = []
        token = self.settings["decoder_start_token_id"]
        while len(found) < limit:
            past = {one.name: value for one, value in zip(self.cache, cache, strict=True)}
            inputs = {"input_ids": np.array([[token]]), **fixed, **past}
            logits, _, *cache = self.decoder.run(None, inputs)
            token = int(logits[0, -1].argmax())
            if token == EOS:
                break
            found.append(token)
        return found


def verify_onnx(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare a model with its export in onnxruntime, both greedy (``compare_texts``)."""
    return compare_texts(translator, PLAIN, OnnxGreedy(folder), pairs, metrics)
