"""Tags of words: an encoder classifies each word at its first subword."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from transformer.data.batching.batch import UNTAGGED
from transformer.data.batching.batch_sequence import BatchKey
from transformer.data.datamodules.tagging import TaggedDataset
from transformer.data.text.conllu import UPOS, TaggedSentence
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.length_bucketing import bucket_batches
from transformer.decoding.prediction.predictor import Predictor


@dataclass(frozen=True)
class Tags:
    """The tags of a sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """One for each word, of ``UPOS``."""
    probabilities: tuple[float, ...]

    def to_line(self) -> str:
        return " ".join(self.tags)

    def to_json(self) -> dict[str, Any]:
        """All fields, probabilities with four decimals."""
        rounded = [round(probability, 4) for probability in self.probabilities]
        return {"words": self.words, "tags": self.tags, "probabilities": rounded}


class Tagger(Predictor):
    """Tags words."""

    task = "tagging"
    causal = False

    @staticmethod
    def sizes(tokenizer: Tokenizer) -> tuple[int, int]:
        return tokenizer.source_vocab_size, len(UPOS)

    def predict(self, texts: Sequence[str]) -> list[Tags]:
        """Tag sentences whose words, and punctuation, are separated by spaces."""
        return self.tag([text.split() for text in texts])

    def count_tokens(self, text: str) -> int:
        """The subwords of all words, and eos."""
        return 1 + sum(max(1, len(word)) for word in self.tokenizer.encode_source(text.split()))

    @torch.inference_mode()
    def tag(self, sentences: Sequence[Sequence[str]]) -> list[Tags]:
        """Tag the words of each sentence; punctuation is separate, as in the training text."""
        # The dataset needs tags, which here only mark the first subword of each word.
        untagged = [TaggedSentence(tuple(words), ("X",) * len(words)) for words in sentences]
        dataset = TaggedDataset(untagged, self.tokenizer)
        found = [Tags((), (), ())] * len(untagged)
        lengths = [length + 1 for length in dataset.lengths()[0].tolist()]
        for indices in bucket_batches(lengths, self.batch_tokens):
            batch = dataset[BatchKey(0, np.array(indices))].to(self.model.projection.weight.device)
            best = self.model.logits(self.model(batch.source)).float().softmax(-1).max(-1)
            for index, values, classes, tags in zip(indices, *best, batch.tags, strict=True):
                first = tags != UNTAGGED
                predicted = tuple(UPOS[number] for number in classes[first].tolist())
                probabilities = tuple(values[first].tolist())
                found[index] = Tags(untagged[index].words, predicted, probabilities)
        return found
