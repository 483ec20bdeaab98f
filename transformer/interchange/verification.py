"""Checks of an export: that another program has such a model, and that both translate alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformer.common.errors import InputError
from transformer.data.text.parallel import Referenced
from transformer.decoding.batched_search import max_source
from transformer.decoding.long_inputs import SourceLimits
from transformer.decoding.translator import Translator, torch_engine
from transformer.evaluation.metrics import score
from transformer.model.attention.multi_head import MultiHeadAttention
from transformer.model.attention.scaled_dot_product import attend_with_weights
from transformer.model.head_masks import heads_off
from transformer.model.transformer import Transformer
from transformer.settings.decoding import NEUTRAL, SearchConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.model import ModelConfig

Values = Mapping[str, tuple[Any, ...]]
"""For keys under ``model.``, the values that a program has; it has all values of other keys."""

_FULL: Values = {
    "pattern": ("full",),
    "decoder_pattern": ("full", None),
    "convolution_window": (None,),
    "encoder_layer": (None,),
    "decoder_layer": (None,),
    "feed_forward": (None,),
}
_TEXT: Values = {**_FULL, "front_end": (None,)}
CTRANSLATE2: Values = {
    **_TEXT,
    # Queries of its cross-attention are normalized before they are split into heads.
    "query_key_norm": (False, "self"),
    "norm_order": ("pre", "post"),
    "positions": ("sinusoidal", "learned", "rotary", "relative"),
    "decoder_start": (None,),
}
ONNX: Values = _TEXT
TRANSFORMERS: Values = {
    **_FULL,
    "query_key_norm": (False,),
    "num_kv_heads": (None,),
    "norm_epsilon": (1e-5,),
}
"""Of all architectures; each has settings of its own (``architectures/architecture.py``)."""

PLAIN: dict[str, Any] = {
    **NEUTRAL,
    "algorithm": "greedy",
    "beam_size": 1,
    "nbest": 1,
    "min_length": 0,
    "no_repeat_ngram": 0,
    "eos_threshold": 0.0,
    "coverage_penalty": 0.0,
}
"""Greedy search without settings that other programs do not have."""


def check_expressible(config: ModelConfig, program: str, has: Values) -> None:
    """Raise InputError if a program does not have such a model."""
    for name, values in has.items():
        value = getattr(config, name)
        if value not in values:
            known = ["null" if choice is None else str(choice) for choice in values]
            in_ctranslate2 = value in CTRANSLATE2.get(name, (value,))
            raise InputError(
                f"model.{name}={value} cannot be expressed in {program}, only "
                f"{' or '.join(known)}; train with model.{name}={known[0]}, or export with "
                f"format={'ctranslate2 or ' if in_ctranslate2 else ''}safetensors"
            )


def check_heads(model: Transformer) -> None:
    """Raise InputError if heads are switched off: this is no part of the weights."""
    off = heads_off(model)
    if off:
        raise InputError(
            f"an export has all heads, {off[0]} too; leave out heads_off=, and use it with the "
            "exported model"
        )


def check_formula(model: Transformer, program: str) -> None:
    """Raise InputError if an attention computes another formula than the paper's."""
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention) and module.formula is not attend_with_weights:
            raise InputError(
                f"the formula of {name} cannot be expressed in {program}; export with format=onnx"
            )


def compare_texts(
    translator: Translator,
    changes: Mapping[str, Any],
    translate: Callable[[Sequence[str]], list[str]],
    pairs: Sequence[Referenced],
    metrics: MetricsConfig,
) -> dict[str, Any]:
    """Compare translations by a changed search with another program's: equal ones and scores."""
    pairs = uncut_pairs(pairs, translator)
    sources = [source for source, _ in pairs]
    search = replace(translator.search, **changes)
    # Other programs split no source.
    original = replace(translator, search=search, engine=torch_engine, limits=SourceLimits())
    ours = [translation.text for translation in original.translate(sources)]
    theirs = translate(sources)
    equal = sum(text == exported for text, exported in zip(ours, theirs, strict=True))
    return {
        "split": "validation",
        "sentences": len(pairs),
        "search": _search_name(search),
        "equal": round(equal / len(pairs), 4),
        **compare_scores(ours, theirs, pairs, metrics),
    }


def _search_name(search: SearchConfig) -> str:
    name = f"{search.algorithm} (beam size {search.beam_size})"
    if search.max_length_ratio == 0:
        # A model that repeats itself writes more here, and has another score.
        name += f", up to {search.max_length_offset:,} tokens"
    return name


def uncut_pairs(pairs: Sequence[Referenced], translator: Translator) -> list[Referenced]:
    """The pairs whose sources the model translates whole; raises InputError if there is none.

    It translates no blank source, of which transformers makes a sentence.
    """
    sources = translator.tokenizer.encode_source([source for source, _ in pairs])
    limit = max_source(translator.model)
    uncut = [
        pair
        for pair, subwords in zip(pairs, sources, strict=True)
        if pair[0].strip() and len(subwords) <= limit
    ]
    if not uncut:
        raise InputError(
            f"no validation sentence has 1 to {limit} subwords, the limit of the model; an "
            "export cannot be verified"
        )
    return uncut


def compare_scores(
    ours: Sequence[str],
    theirs: Sequence[str],
    pairs: Sequence[Referenced],
    metrics: MetricsConfig,
) -> dict[str, Any]:
    """The scores of the translations of a model and of its export, by ``metrics.choose``."""
    sources, references = zip(*pairs, strict=True)
    scores = [
        score(texts, references, (metrics.choose,), config=metrics, sources=sources)[0]
        for texts in (ours, theirs)
    ]
    name = scores[0].name.lower()
    return {
        name: round(scores[0].value, 2),
        f"{name}_exported": round(scores[1].value, 2),
        "signature": scores[0].signature,
    }


def agreement(expected: Sequence[Sequence[str]], exported: Sequence[Sequence[str]]) -> float:
    """Fraction of the expected tokens, ends included, before the first difference."""
    same = total = 0
    for tokens, exported_tokens in zip(expected, exported, strict=True):
        pairs = zip([*tokens, None], [*exported_tokens, None], strict=False)
        equal = [token == exported_token for token, exported_token in pairs]
        same += equal.index(False) if False in equal else len(equal)
        total += len(tokens) + 1
    return same / total if total else 1.0
