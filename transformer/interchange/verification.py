"""Whether an exported model says what the model says: the same text through both.

It does not know the format but through its engine. Greedy search on both sides: it has no settings
that two programs could read differently.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.common.errors import InputError
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.search.config import NEUTRAL, SearchConfig
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import MetricsConfig, Score, score
from transformer.interchange.ctranslate2 import load_ctranslate2

if TYPE_CHECKING:
    from ctranslate2 import Translator as Engine


@dataclass(frozen=True)
class Verification:
    """What came of it.

    Attributes:
        agreement: Share of the tokens that both say, up to the first that differs in a sentence.
        ours: BLEU of the model.
        theirs: BLEU of the exported model.
        seconds: Of ours and of theirs, with as many threads.
        computed_in: The type that the engine computed in: that of the quantization, or another
            where this machine cannot.
    """

    agreement: float
    ours: Score
    theirs: Score
    seconds: tuple[float, float]
    computed_in: str

    @property
    def loss(self) -> float:
        """BLEU that the exported model lacks."""
        return self.ours.value - self.theirs.value

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "agreement": round(self.agreement, 4),
            "bleu": round(self.ours.value, 2),
            "bleu_exported": round(self.theirs.value, 2),
            "signature": self.ours.signature,
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
        translator: With the model as it was.
        folder: With the model as it was exported.
        pairs: Raw source and reference.
        metrics: How translations and references are compared.

    Raises:
        InputError: The engine does not load it, or no source is short enough to compare.
    """
    tokenizer = translator.tokenizer
    sources, references = zip(*_uncut(pairs, translator), strict=True)
    greedy = _plain(translator.search)
    ours = Translator(translator.model, tokenizer, greedy, translator.batch_tokens)
    began = time.perf_counter()
    expected = ours.translate(sources)
    seconds = time.perf_counter() - began
    engine = load_ctranslate2(folder)
    found, their_seconds = _translated(ours, engine, sources)
    ids = {
        subword: i
        for i, subword in enumerate(tokenizer.subwords(range(tokenizer.target_vocab_size)))
    }
    texts = tokenizer.decode_target([[ids[subword] for subword in row] for row in found])
    return Verification(
        agreement([translation.tokens for translation in expected], found),
        score([one.text for one in expected], references, ("bleu",), config=metrics)[0],
        score(texts, references, ("bleu",), config=metrics)[0],
        (seconds, their_seconds),
        engine.compute_type,
    )


def _uncut(pairs: Sequence[tuple[str, str]], translator: Translator) -> list[tuple[str, str]]:
    """Those whose source the model reads as a whole: longer ones we cut, and the engine does not.

    Raises:
        InputError: There is none.
    """
    rows = translator.tokenizer.encode_source([source for source, _ in pairs])
    most = max_subwords(translator.model)
    short = [pair for pair, row in zip(pairs, rows, strict=True) if len(row) <= most]
    if not short:
        raise InputError(
            f"no validation sentence has {most} pieces or fewer, as the model reads; an export "
            "cannot be verified"
        )
    return short


def _translated(
    ours: Translator, engine: "Engine", sources: Sequence[str]
) -> tuple[list[list[str]], float]:
    """The target pieces that the engine finds, as many as ours may, and how long it takes."""
    began = time.perf_counter()
    subwords = ours.tokenizer.encode_source(sources)
    most = max_subwords(ours.model)
    limits = [min(most, ours.search.limit(len(row))) for row in subwords]
    found = engine.translate_batch(
        [ours.tokenizer.source_subwords(row) for row in subwords],
        beam_size=1,
        max_batch_size=ours.batch_tokens,
        batch_type="tokens",
        max_decoding_length=max(limits),
        max_input_length=0,
    )
    seconds = time.perf_counter() - began
    # The engine has one limit for all sentences.
    kept = [result.hypotheses[0][:limit] for result, limit in zip(found, limits, strict=True)]
    return kept, seconds


def _plain(search: SearchConfig) -> SearchConfig:
    """Greedy, and free of what a run's own search may rule out: the engine does not."""
    free = {"min_length": 0, "no_repeat_ngram": 0, "eos_threshold": 0.0, "coverage_penalty": 0.0}
    return replace(search, **{**NEUTRAL, **free}, algorithm="greedy", beam_size=1, nbest=1)


def agreement(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """Share of the expected tokens, and ends, that stand before the first difference."""
    same = total = 0
    for wanted, given in zip(expected, found, strict=True):
        rows = [*wanted, None], [*given, None]
        alike = [a == b for a, b in zip(*rows, strict=False)]
        same += alike.index(False) if False in alike else len(alike)
        total += len(rows[0])
    return same / total if total else 1.0
