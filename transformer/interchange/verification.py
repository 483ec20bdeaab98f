"""Compares an exported model with the original: both translate the same text.

Both search greedily, which has no settings that two programs could interpret differently.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.common.errors import InputError
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.search.config import NEUTRAL
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import MetricsConfig, Score, score
from transformer.interchange.ctranslate2 import load_ctranslate2

if TYPE_CHECKING:
    from ctranslate2 import Translator as Engine


@dataclass(frozen=True)
class Verification:
    """Result of the comparison.

    Attributes:
        agreement: Fraction of equal tokens, up to the first difference of each sentence.
        original: BLEU of the model.
        exported: BLEU of the exported model.
        seconds: Time of the model and of the exported model, with as many threads.
        computed_in: The type that the engine computed in: that of the quantization, or another
            if this machine does not support it.
    """

    agreement: float
    original: Score
    exported: Score
    seconds: tuple[float, float]
    computed_in: str

    @property
    def loss(self) -> float:
        """BLEU that the export loses."""
        return self.original.value - self.exported.value

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "agreement": round(self.agreement, 4),
            "bleu": round(self.original.value, 2),
            "bleu_exported": round(self.exported.value, 2),
            "signature": self.original.signature,
            "speed_up": round(self.seconds[0] / self.seconds[1], 2),
            "computed_in": self.computed_in,
        }


def verify_ctranslate2(
    translator: Translator,
    folder: Path,
    pairs: Sequence[tuple[str, str]],
    metrics: MetricsConfig,
) -> Verification:
    """Translate the sources with both, and compare.

    Args:
        translator: Has the model.
        folder: The folder of the export.
        pairs: Raw source and reference.
        metrics: Settings of BLEU.

    Raises:
        InputError: The engine does not load the export, or no source is short enough.
    """
    tokenizer = translator.tokenizer
    sources, references = zip(*_uncut(pairs, translator), strict=True)
    # Greedy, and without the limits of a run's search that the engine does not have.
    free = {"min_length": 0, "no_repeat_ngram": 0, "eos_threshold": 0.0, "coverage_penalty": 0.0}
    plain = {**NEUTRAL, **free, "algorithm": "greedy", "beam_size": 1, "nbest": 1}
    search = replace(translator.search, **plain)
    original = Translator(translator.model, tokenizer, search, translator.batch_tokens)
    engine = load_ctranslate2(folder)
    start = time.perf_counter()
    expected = original.translate(sources)
    middle = time.perf_counter()
    found = _engine_translations(original, engine, sources)
    seconds = middle - start, time.perf_counter() - middle
    subwords = tokenizer.subwords(range(tokenizer.target_vocab_size))
    ids = {subword: number for number, subword in enumerate(subwords)}
    texts = tokenizer.decode_target([[ids[subword] for subword in tokens] for tokens in found])
    return Verification(
        agreement([translation.tokens for translation in expected], found),
        score([one.text for one in expected], references, ("bleu",), config=metrics)[0],
        score(texts, references, ("bleu",), config=metrics)[0],
        seconds,
        engine.compute_type,
    )


def _uncut(pairs: Sequence[tuple[str, str]], translator: Translator) -> list[tuple[str, str]]:
    """The pairs with a source that our translator does not cut: the engine never cuts.

    Raises:
        InputError: There is none.
    """
    sources = translator.tokenizer.encode_source([source for source, _ in pairs])
    limit = max_subwords(translator.model)
    short = [pair for pair, one in zip(pairs, sources, strict=True) if len(one) <= limit]
    if not short:
        raise InputError(
            f"no validation sentence has {limit} subwords or fewer, the limit of the model; an "
            "export cannot be verified"
        )
    return short


def _engine_translations(
    original: Translator, engine: "Engine", sources: Sequence[str]
) -> list[list[str]]:
    """The target subwords by the engine, cut at the limit of our search."""
    subwords = original.tokenizer.encode_source(sources)
    limit = max_subwords(original.model)
    limits = [min(limit, original.search.limit(len(one))) for one in subwords]
    found = engine.translate_batch(
        [original.tokenizer.source_subwords(one) for one in subwords],
        beam_size=1,
        max_batch_size=original.batch_tokens,
        batch_type="tokens",
        max_decoding_length=max(limits),
        max_input_length=0,
    )
    # The engine has one limit for all sentences.
    return [result.hypotheses[0][:limit] for result, limit in zip(found, limits, strict=True)]


def agreement(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """Fraction of the expected tokens, ends included, before the first difference."""
    same = total = 0
    for one, other in zip(expected, found, strict=True):
        equal = [a == b for a, b in zip([*one, None], [*other, None], strict=False)]
        same += equal.index(False) if False in equal else len(equal)
        total += len(one) + 1
    return same / total if total else 1.0
