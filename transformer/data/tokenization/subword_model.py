"""A vocabulary of subwords: a model of SentencePiece.

Does not know which side it is for, nor which tags a text has.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sentencepiece

from transformer.data.tokenization.config import TokenizerConfig
from transformer.data.tokenization.normalization import STAND_IN, WORD_START, normalize
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformer.data.tokenization.subword_regularization import SegmentationSampler


class Subwords(Vocabulary):
    """Splits texts into subwords, with the best or a sampled segmentation, and joins them."""

    def __init__(self, model: bytes, config: TokenizerConfig, tags: Tags, threads: int) -> None:
        """Wrap a trained SentencePiece model; see `Tokenizer` for ``threads``."""
        self._arguments = (model, config, tags, threads)
        self.processor = sentencepiece.SentencePieceProcessor(
            model_proto=model, num_threads=threads
        )
        self._config = config
        self.tags = tags
        self.first_tag = int(self.processor.get_piece_size())
        is_control = self.processor.is_control
        self.control = frozenset(
            subword for subword in range(self.first_tag) if is_control(subword)
        )
        self._stand_in, self._word_start = map(self._bytes, (STAND_IN, WORD_START))

    def __reduce__(self) -> tuple[type["Subwords"], tuple[Any, ...]]:
        """Pickle the model, not the processor."""
        return type(self), self._arguments

    def split(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of sentences, of the best segmentation."""
        return self._spelling_out(sentences, self.processor.encode)

    def draw(self, sentences: Sequence[str], seeds: Sequence[int]) -> list[list[int]]:
        """Sample a segmentation of each sentence: a function of sentence and seed."""
        return self._spelling_out(
            sentences, lambda texts: list(map(self._sampler.draw, texts, seeds))
        )

    def join(self, sentences: list[list[int]]) -> list[str]:
        """Return the sentences of subword ids."""
        found: list[str] = self.processor.decode(sentences)
        return found

    def spell(self, token: int) -> str:
        """Return a subword as spelt in the vocabulary."""
        return str(self.processor.id_to_piece(token))

    def _spelling_out(
        self, sentences: Sequence[str], cut: Callable[[list[str]], list[list[int]]]
    ) -> list[list[int]]:
        """Split normalized sentences, with U+2581 in bytes: to SentencePiece it is the space."""
        texts = [normalize(sentence) for sentence in sentences]
        rows = cut([text.replace(WORD_START, STAND_IN) for text in texts])
        for text, row in zip(texts, rows, strict=True):
            for index in range(len(row) - 2 if WORD_START in text else 0):
                if row[index : index + 3] == self._stand_in:
                    row[index : index + 3] = self._word_start
        return rows

    def _bytes(self, character: str) -> list[int]:
        return [self.processor.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]

    @cached_property
    def _sampler(self) -> "SegmentationSampler":
        from transformer.data.tokenization.subword_regularization import SegmentationSampler

        config = self._config
        return SegmentationSampler(self.processor, config.algorithm, config.sampling)
