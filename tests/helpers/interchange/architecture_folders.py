"""Folders of models of Hugging Face with random weights, and vocabularies of the pocket text."""

import json
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from tokenizers import ByteLevelBPETokenizer
from torch import nn

from tests.helpers.interchange.marian_folders import SIZES, pieces, sentences
from tests.helpers.lazy import hf

T5_SIZES: dict[str, Any] = {
    "d_model": 32,
    "d_kv": 6,
    "d_ff": 48,
    "num_heads": 4,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "decoder_start_token_id": 0,
}


WHISPER_SIZES: dict[str, Any] = {
    "d_model": 16,
    "num_mel_bins": 8,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_target_positions": 40,
}


LANGUAGES = {
    "m2m": ("en", "ha", "is", "ja", "cs", "ru", "zh", "de"),
    "nllb": ("deu_Latn", "eng_Latn", "fra_Latn"),
}
"""Codes by kind; those of M2M-100 are its set ``wmt21``."""

T5_FACTORS = {"relative_attention_bias": 8.0, ".q.": 0.3}
"""The projection to queries is as small as T5 draws it, as its products are not scaled. With large
ones a logit of transformers itself is wrong by up to 1.5e-4, against the same in float64.
"""
PRE_NORM = {"embed_positions": 4.0, "encoder_attn.out_proj": 0.5}
POST_NORM = {"encoder_attn.out_proj": 4.0}


@cache
def unigram(**ids: int) -> bytes:
    """A unigram model of the pocket text with these ids of its symbols."""
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=chain(sentences("en"), sentences("de")),
        model_writer=model,
        vocab_size=500,
        num_threads=1,
        minloglevel=2,
        normalization_rule_name="nmt_nfkc",
        **ids,
    )
    return model.getvalue()


def randomize(model: Any, ends: float, end: int, factors: Mapping[str, float]) -> None:
    """Draw all weights; the logit of the end varies ``ends`` times as much as the others.

    Weights of these names are multiplied by ``factors``, so that texts do not repeat one token.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            scale = "norm" in name and name.endswith("weight")
            weight.copy_(1 + noise * 0.1 if scale else noise * (0.25 if weight.dim() > 1 else 0.1))
            for part, factor in factors.items():
                weight.mul_(factor if part in name else 1.0)
        output = model.get_output_embeddings().weight
        output.mul_(0.5)
        output[end] *= ends


def t5_folder(
    folder: Path,
    *,
    sentencepiece_file: bool = False,
    untied: bool = False,
    kind: str = "t5",
    layout: str = "t5",
    vocab_size: int = 640,
    **changes: Any,
) -> Path:
    """Write a folder of T5 or mT5, with 100 sentinels; MADLAD-400's layout has none."""
    folder.mkdir(parents=True)
    madlad = layout == "madlad"
    ids = {"unk_id": 0, "bos_id": 1, "eos_id": 2} if madlad else {"pad_id": 0, "eos_id": 1}
    ids = ids if madlad else {**ids, "unk_id": 2, "bos_id": -1}
    (folder / "spiece.model").write_bytes(unigram(**ids))
    given = {"extra_ids": 0, "pad_token": "<s>"} if madlad else {"extra_ids": 100}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "T5Tokenizer", **given})
    )
    if not sentencepiece_file:
        tokenizer = hf.T5Tokenizer.from_pretrained(folder, **given)
        (folder / "spiece.model").unlink()
        tokenizer.save_pretrained(folder)
    symbols = {"pad_token_id": 1, "eos_token_id": 2} if madlad else {}
    values = {**T5_SIZES, "vocab_size": vocab_size, **symbols, **changes}
    torch.manual_seed(1)
    config, model = hf.T5Config, hf.T5ForConditionalGeneration
    if kind == "mt5":
        config, model = hf.MT5Config, hf.MT5ForConditionalGeneration
    built = model(config(**values, tie_word_embeddings=not untied)).eval()
    if untied:
        built.lm_head.weight = nn.Parameter(torch.empty_like(built.lm_head.weight))
        built.config.tie_word_embeddings = False
    randomize(built, 5.0, 2 if madlad else 1, T5_FACTORS)
    built.save_pretrained(folder)
    return folder


def mbart_folder(folder: Path, *, sentencepiece_file: bool = False, **changes: Any) -> Path:
    """Write a folder of mBART-50."""
    folder.mkdir(parents=True)
    subwords = pieces("en de")
    (folder / "sentencepiece.bpe.model").write_bytes(subwords)
    own = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "en_XX", "tgt_lang": "de_DE"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    tokenizer = hf.MBart50Tokenizer.from_pretrained(folder)
    if not sentencepiece_file:
        (folder / "sentencepiece.bpe.model").unlink()
        tokenizer.save_pretrained(folder)
    values = {**SIZES, "vocab_size": len(tokenizer), "decoder_start_token_id": 2, **changes}
    torch.manual_seed(1)
    model = hf.MBartForConditionalGeneration(hf.MBartConfig(**values)).eval()
    randomize(model, 3.0, 2, PRE_NORM)
    model.save_pretrained(folder)
    return folder


def bart_folder(
    folder: Path,
    *,
    kind: str = "bart",
    old_files: bool = False,
    fewer: int = 0,
    **changes: Any,
) -> Path:
    """Write a folder of BART or Blenderbot; ``fewer`` tokens have no vector."""
    folder.mkdir(parents=True)
    trained = ByteLevelBPETokenizer()
    symbols = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "blenderbot":
        symbols = ["<pad>", "<s>", "</s>", "<unk>"]
    text = chain(sentences("en"), sentences("de"))
    trained.train_from_iterator(text, 500, special_tokens=symbols, show_progress=False)
    trained.save_model(str(folder))
    tokenizer_class = hf.BartTokenizer if kind == "bart" else hf.BlenderbotTokenizer
    tokenizer = tokenizer_class.from_pretrained(folder)
    if not old_files:
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        tokenizer.save_pretrained(folder)
    values: dict[str, Any] = {**SIZES, "vocab_size": len(tokenizer) - fewer, **changes}
    torch.manual_seed(1)
    if kind == "bart":
        model: Any = hf.BartForConditionalGeneration(hf.BartConfig(**values)).eval()
        randomize(model, 1.0, 2, POST_NORM)
        model.final_logits_bias[0, 2] = 1.6
    else:
        model = hf.BlenderbotForConditionalGeneration(hf.BlenderbotConfig(**values)).eval()
        randomize(model, 3.0, 2, PRE_NORM)
    model.save_pretrained(folder)
    return folder


WHISPER_SYMBOLS = ("translate", "transcribe", "startoflm", "startofprev", "nospeech")
WHISPER_LANGUAGES = ("en", "de", "ja", "haw")


def whisper_folder(
    folder: Path,
    *,
    english: bool = False,
    seconds: int = 1,
    **changes: Any,
) -> Path:
    """Write a folder of Whisper, whose windows have these seconds."""
    folder.mkdir(parents=True)
    trained = ByteLevelBPETokenizer()
    text = chain(sentences("en"), sentences("de"))
    trained.train_from_iterator(text, 400, show_progress=False)
    trained.save_model(str(folder))
    positions = 50 * seconds
    symbols = ("startoftranscript", *WHISPER_LANGUAGES, *WHISPER_SYMBOLS, "notimestamps")
    special = [f"<|{name}|>" for name in symbols]
    times = [f"<|{number * 0.02:.2f}|>" for number in range(positions + 1)]
    tokenizer = hf.WhisperTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens(times)
    (folder / "vocab.json").unlink()
    (folder / "merges.txt").unlink()
    tokenizer.save_pretrained(folder)
    hf.WhisperFeatureExtractor(feature_size=8, chunk_length=seconds).save_pretrained(folder)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in special}
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    start = ids["<|startoftranscript|>"]
    values: dict[str, Any] = {
        **WHISPER_SIZES,
        "vocab_size": len(tokenizer),
        "max_source_positions": positions,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), end),
        "decoder_start_token_id": start,
        **changes,
    }
    torch.manual_seed(1)
    model = hf.WhisperForConditionalGeneration(hf.WhisperConfig(**values)).eval()
    randomize(model, 2.0, end, {"encoder_attn.out_proj": 2.0, "decoder.embed_positions": 2.0})
    generation = {
        "is_multilingual": not english,
        "lang_to_id": {f"<|{code}|>": ids[f"<|{code}|>"] for code in WHISPER_LANGUAGES},
        "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_initial_timestamp_index": 50,
        # Subwords, and all symbols that are not a beginning.
        "suppress_tokens": [5, 40, 41, start, *(ids[f"<|{name}|>"] for name in WHISPER_SYMBOLS)],
        "begin_suppress_tokens": [tokenizer.encode(" ", add_special_tokens=False)[0], end],
        "decoder_start_token_id": start,
        "pad_token_id": end,
        "eos_token_id": end,
        "bos_token_id": end,
        "max_length": 40,
    }
    if english:
        del generation["lang_to_id"], generation["task_to_id"]
    model.generation_config = hf.GenerationConfig(**generation)
    model.save_pretrained(folder)
    return folder


def byt5_folder(folder: Path, **changes: Any) -> Path:
    """Write a folder of ByT5."""
    folder.mkdir(parents=True)
    hf.ByT5Tokenizer().save_pretrained(folder)
    torch.manual_seed(2)
    config = hf.T5Config(**{**T5_SIZES, "vocab_size": 384, **changes}, tie_word_embeddings=True)
    model = hf.T5ForConditionalGeneration(config).eval()
    randomize(model, 5.0, 1, T5_FACTORS)
    model.save_pretrained(folder)
    return folder


def m2m_folder(
    folder: Path,
    *,
    kind: str = "m2m",
    algorithm: str = "bpe",
    missing: int = 0,
    **changes: Any,
) -> Path:
    """Write a folder; ``missing`` pieces are not in the vocabulary, and 8 ids have no name."""
    folder.mkdir(parents=True)
    subwords = pieces("en de", algorithm)
    processor = sentencepiece.SentencePieceProcessor(model_proto=subwords)
    names = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size() - missing)]
    (folder / "sentencepiece.bpe.model").write_bytes(subwords)
    count = len(names) + 4
    if kind == "m2m":
        ids = {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *names])}
        (folder / "vocab.json").write_text(json.dumps(ids))
        hf.M2M100Tokenizer(
            *(str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")),
            language_codes="wmt21",
            additional_special_tokens=[f"__{code}__" for code in LANGUAGES["m2m"]],
            src_lang="en",
            tgt_lang="de",
        ).save_pretrained(folder)
    else:
        published(folder, LANGUAGES["nllb"])
    values: dict[str, Any] = {**SIZES, "vocab_size": count + len(LANGUAGES[kind]) + 8, **changes}
    torch.manual_seed(1)
    model = hf.M2M100ForConditionalGeneration(hf.M2M100Config(**values)).eval()
    randomize(model, 3.0, 2, PRE_NORM)
    model.save_pretrained(folder)
    return folder


def published(folder: Path, codes: tuple[str, ...]) -> None:
    """A ``tokenizer.json`` like the published ones: the vocabulary has codes and the mask, too."""
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NllbTokenizer"}')
    hf.NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    file = folder / "tokenizer.json"
    values = json.loads(file.read_text())
    vocabulary, first = values["model"]["vocab"], len(values["model"]["vocab"])
    mask = values["added_tokens"].pop()
    for index, code in enumerate((*codes, "<mask>")):
        vocabulary[code] = first + index
        values["added_tokens"].append({**mask, "content": code, "id": first + index})
    file.write_text(json.dumps(values))
    own = {"tokenizer_class": "NllbTokenizer", "extra_special_tokens": list(codes)}
    own |= {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
