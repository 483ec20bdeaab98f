"""A source side that is no text: the path of a file to a sequence of vectors."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import numpy as np
from jaxtyping import Float

from transformer.common.errors import BadSource, InputError
from transformer.common.schema import typed
from transformer.data.features.extractor import FeatureExtractor
from transformer.data.features.read_source import ReadSource, Times
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.vocabulary import Vocabulary
from transformer.settings.sources import SourceConfig

Vectors = Float[np.ndarray, "length channel"]
"""A source as vectors; NaN stands for what the last one lacks."""


def model_of_vectors(config: SourceConfig) -> bytes:
    """What a tokenizer stores of such a source."""
    return json.dumps(asdict(config), sort_keys=True).encode()


class VectorSource(Vocabulary):
    """Reads files in place of splitting text; its size is the numbers of a vector."""

    def __init__(self, model: bytes) -> None:
        """Read a model of `model_of_vectors`; raises ValueError or InputError if damaged."""
        self.config = typed(SourceConfig, json.loads(model), "source")
        self.extractor = FeatureExtractor(self.config)
        self.first_tag = self.config.channels
        self.tags = Tags()
        self.control = frozenset()

    def read(self, sources: Sequence[str]) -> list[Vectors]:
        """The vectors of each file, none of a blank line; BadSource if one cannot be read."""
        return list(map(self._vectors, sources))

    def _vectors(self, source: str) -> Vectors:
        if isinstance(source, ReadSource):
            return source.vectors
        if not source.strip():
            return np.zeros((0, self.config.channels), dtype=np.float32)
        try:
            return self.extractor.vectors(source)
        except InputError as error:
            raise BadSource(str(error), str(source)) from error

    def opened(self, source: str) -> ReadSource:
        """A source to translate with its vectors, also a long one (`FeatureExtractor.read`)."""
        return source if isinstance(source, ReadSource) else self.extractor.read(source)

    def labels(self, row: Vectors, times: Times | None = None) -> list[str]:
        """Names of the vectors of a source: a time, or the place in a picture."""
        return self.extractor.labels(row, times)

    def split(
        self, sentences: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[list[int]]:
        raise TypeError("a source of vectors is read, not split")

    def decode(self, rows: Iterable[Sequence[int]]) -> list[str]:
        return ["" for _ in rows]

    def join(self, ids: list[int]) -> str:
        raise TypeError("vectors are no text")

    def spell(self, token: int) -> str:
        return f"channel {token}"
