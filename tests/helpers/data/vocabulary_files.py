"""Vocabularies of other programs: SentencePiece's models and files of ``tokenizers``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece

IDS = {"unk_id": 0, "bos_id": -1, "eos_id": 2, "pad_id": 5}
"""Ids that differ from ours; there is no bos."""


def sentencepiece_file(path: Path, texts: Iterable[str], kind: str = "bpe", **changes: Any) -> str:
    """Train a model with SentencePiece itself, with its default normalization (NFKC)."""
    settings = {"vocab_size": 400, "byte_fallback": kind in ("unigram", "bpe"), **IDS, **changes}
    with path.open("wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=kind,
            hard_vocab_limit=False,
            minloglevel=2,
            **settings,
        )
    return str(path)


def byte_level_file(path: Path, texts: Iterable[str], size: int = 400) -> str:
    """Train byte-level BPE with the symbols, ids and post-processor of BART."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.save(str(path))
    return str(path)


def word_piece_file(path: Path, texts: Iterable[str], size: int = 200) -> str:
    """Train WordPiece with the pre-tokenizer of BERT, which cuts punctuation off."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=symbols, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return str(path)


def suffix_file(path: Path, texts: Iterable[str], size: int = 60) -> str:
    """Train byte pairs of characters that mark the end of a word."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    ending = {"end_of_word_suffix": "</w>"}
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **ending))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<pad>", "<unk>", "<s>", "</s>"],
        show_progress=False,
        **ending,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return str(path)
