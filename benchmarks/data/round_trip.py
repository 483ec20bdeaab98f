"""Whether each line of a text comes back from its ids, after the normalization of its vocabulary.

    python -m benchmarks.data.round_trip FILE…

The vocabularies are trained on 40,000 of the lines by SentencePiece and ``tokenizers`` themselves.
Lines with unknown tokens are counted alone. One line of output a vocabulary.
"""

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import sentencepiece
from tokenizers import Tokenizer as ByteLevelBpe
from tokenizers import decoders, models, pre_tokenizers, trainers

from transformer.data.text.lines import read_lines
from transformer.data.tokenization.tokenizer import Tokenizer, normalize
from transformer.settings.tokenizer import UNK, TokenizerConfig

_SAMPLE = 40_000
_SIZE = 8_000
_AT_ONCE = 5_000


def main(files: Sequence[str]) -> None:
    """Count the lines for each vocabulary."""
    lines = [line for file in files for line in read_lines(Path(file))]
    sample = random.Random(0).sample(lines, min(_SAMPLE, len(lines)))
    print(f"{len(lines):,} lines")
    with TemporaryDirectory() as folder:
        for kind in ("unigram", "bpe", "char", "word"):
            path = _sentencepiece(Path(folder, kind), sample, kind)
            processor = sentencepiece.SentencePieceProcessor(model_file=path)
            tokenizer = _opened("sentencepiece", file=path)
            _count(f"sentencepiece {kind}", tokenizer, lines, partial(_shown, processor))
        path = _byte_level(Path(folder, "tokenizer.json"), sample)
        _count("huggingface byte-level", _opened("huggingface", file=path), lines, _exact)
        _count("bytes", _opened("bytes"), lines, _exact)
        pairs = [(text, text) for text in sample]
        learned = Tokenizer.train(TokenizerConfig(vocab_size=_SIZE), lambda: pairs)
        _count("bpe", learned, lines, normalize)


def _opened(algorithm: str, file: str | None = None) -> Tokenizer:
    config = TokenizerConfig(algorithm=algorithm, file=file)  # type: ignore[arg-type]
    return Tokenizer.train(config, lambda: [])


def _exact(text: str) -> str:
    return text if text.strip() else ""


def _shown(processor: sentencepiece.SentencePieceProcessor, text: str) -> str:
    return str(processor.normalize(text)).replace("\u2581", " ").strip(" ")


def _count(
    name: str, tokenizer: Tokenizer, lines: Sequence[str], normal: Callable[[str], str]
) -> None:
    equal = unknown = 0
    for start in range(0, len(lines), _AT_ONCE):
        part = lines[start : start + _AT_ONCE]
        rows = tokenizer.encode_source(part)
        for line, row, text in zip(part, rows, tokenizer.decode_source(rows), strict=True):
            unknown += UNK in row
            equal += UNK not in row and text == normal(line)
    different = len(lines) - equal - unknown
    print(f"{name}: {equal:,} equal, {different:,} different, {unknown:,} with unknown tokens")


def _sentencepiece(path: Path, texts: Sequence[str], kind: str) -> str:
    with path.open("wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=filter(str.strip, texts),
            model_writer=model,
            model_type=kind,
            vocab_size=_SIZE,
            hard_vocab_limit=False,
            byte_fallback=kind in ("unigram", "bpe"),
            max_sentence_length=20_000,
            minloglevel=2,
            unk_id=0,
            bos_id=-1,
            eos_id=2,
            pad_id=5,
        )
    return str(path)


def _byte_level(path: Path, texts: Sequence[str]) -> str:
    tokenizer = ByteLevelBpe(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_SIZE,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return str(path)


if __name__ == "__main__":
    main(sys.argv[1:])
