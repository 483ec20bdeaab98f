"""Compares a model with its export: both translate the same text."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer.checkpoint.exported import read_safetensors
from transformer.checkpoint.run_directory import SAFETENSORS
from transformer.common.errors import InputError
from transformer.data.text.parallel import Referenced
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.translator import Translator, torch_engine
from transformer.evaluation.metrics import score
from transformer.interchange.ctranslate2_engine import EngineBeams
from transformer.model.layers.quantization import in_precision
from transformer.settings.decoding import NEUTRAL
from transformer.settings.metrics import MetricsConfig

PLAIN: dict[str, Any] = {
    **{**NEUTRAL, "algorithm": "greedy", "beam_size": 1, "nbest": 1, "min_length": 0},
    **{"no_repeat_ngram": 0, "eos_threshold": 0.0, "coverage_penalty": 0.0},
}
"""Greedy search without settings that other programs do not have."""


def verify_ctranslate2(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare greedy translations of a model and its export: equal tokens, scores and times."""
    tokenizer = translator.tokenizer
    pairs = _uncut(pairs, translator)
    sources = [source for source, _ in pairs]
    search = replace(translator.search, **PLAIN)
    original = Translator(translator.model, tokenizer, search, translator.batch_tokens)
    engine = EngineBeams(original, folder, torch.device("cpu"))
    start = time.perf_counter()
    expected = original.translate(sources)
    middle = time.perf_counter()
    subwords = tokenizer.encode_source(sources)
    beams = zip(subwords, engine(subwords), strict=True)
    found = [beam[0].tokens[: engine.limit(source)] for source, beam in beams]
    end = time.perf_counter()
    texts = [one.text for one in expected], tokenizer.decode_target(found)
    tokens = [one.tokens for one in expected], list(map(tokenizer.subwords, found))
    return {
        "split": "validation",
        "sentences": len(sources),
        "search": "greedy (beam size 1)",
        "agreement": round(agreement(*tokens), 4),
        **_scores(texts, pairs, metrics),
        "speed_up": round((middle - start) / (end - middle), 2),
        # The type of the quantization, or another that this machine supports.
        "computed_in": engine.engine.compute_type,
    }


def verify_int8(
    translator: Translator, folder: Path, pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    """Compare greedy translations of a model and its int8 folder with ``precision=int8``."""
    model = in_precision(read_safetensors(folder).model, "int8")
    search = replace(translator.search, **PLAIN)
    read = Translator(model, translator.tokenizer, search, translator.batch_tokens).translate
    found = compare_texts(
        translator, PLAIN, lambda texts: [one.text for one in read(texts)], pairs, metrics
    )
    return {**found, "bytes": (folder / SAFETENSORS).stat().st_size}


def compare_texts(
    translator: Translator,
    changes: Mapping[str, Any],
    translate: Callable[[Sequence[str]], list[str]],
    pairs: Sequence[Referenced],
    metrics: MetricsConfig,
) -> dict[str, Any]:
    """Compare translations by a changed search with another program's: equal ones and scores."""
    pairs = _uncut(pairs, translator)
    sources = [source for source, _ in pairs]
    search = replace(translator.search, **changes)
    original = replace(translator, search=search, engine=torch_engine)
    ours = [one.text for one in original.translate(sources)]
    theirs = translate(sources)
    return {
        "split": "validation",
        "sentences": len(pairs),
        "search": f"{search.algorithm} (beam size {search.beam_size})",
        "equal": round(sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(pairs), 4),
        **_scores((ours, theirs), pairs, metrics),
    }


def _scores(
    texts: tuple[list[str], list[str]], pairs: Sequence[Referenced], metrics: MetricsConfig
) -> dict[str, Any]:
    sources, references = zip(*pairs, strict=True)
    ours, theirs = (
        score(one, references, (metrics.choose,), config=metrics, sources=sources)[0]
        for one in texts
    )
    name = ours.name.lower()
    values = {name: round(ours.value, 2), f"{name}_exported": round(theirs.value, 2)}
    return {**values, "signature": ours.signature}


def _uncut(pairs: Sequence[Referenced], translator: Translator) -> list[Referenced]:
    sources = translator.tokenizer.encode_source([source for source, _ in pairs])
    limit = max_subwords(translator.model)
    short = [pair for pair, one in zip(pairs, sources, strict=True) if len(one) <= limit]
    if not short:
        raise InputError(
            f"no validation sentence has {limit} subwords or fewer, the limit of the model; an "
            "export cannot be verified"
        )
    return short


def agreement(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> float:
    """Fraction of the expected tokens, ends included, before the first difference."""
    same = total = 0
    for one, other in zip(expected, found, strict=True):
        equal = [a == b for a, b in zip([*one, None], [*other, None], strict=False)]
        same += equal.index(False) if False in equal else len(equal)
        total += len(one) + 1
    return same / total if total else 1.0
