"""The weights and the search of a run that do best on its validation text."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from transformer.common.schema import typed
from transformer.data.config import DataConfig
from transformer.data.corpora.evaluation_text import validation_pairs
from transformer.decoding.search.config import NEUTRAL, SearchConfig
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.translator import Translator, trained_with
from transformer.evaluation.metrics import DECIMALS, MetricsConfig, Score, build_metric, score
from transformer.model.build import build_transformer
from transformer.model.checkpoint import checkpoint
from transformer.model.checkpoint.locate import find_checkpoint
from transformer.model.config import ModelConfig
from transformer.training.checkpointing.averaging import average_checkpoints, newest_checkpoints

WeightsName = Literal["single", "average", "ema"]
"""Of one update; the mean of the newest checkpoints; the exponential moving average."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The searches to try, and the text.

    ``metric`` None is the one that chooses the best checkpoint of the run; ``sentences`` are the
    first of the validation set, None is all; ``scoring`` None is as the run does.
    """

    beam_sizes: Sequence[int] = (1, 2, 5, 10)
    length_penalties: Sequence[float] = (0.0, 0.6, 1.0, 1.4, 1.8)
    metric: str | None = None
    sentences: int | None = None
    batch_tokens: int = 4096
    device: torch.device | str = "cpu"
    scoring: MetricsConfig | None = None


@dataclass(frozen=True)
class Trial:
    """Score on the validation set, and seconds for all its sentences."""

    weights: str
    search: SearchConfig
    score: Score
    seconds: float
    sentences: int

    @property
    def sentences_per_second(self) -> float:
        return self.sentences / self.seconds

    def to_json(self) -> dict[str, Any]:
        return {
            "weights": self.weights,
            "algorithm": self.search.algorithm,
            "beam_size": self.search.beam_size,
            "length_penalty": self.search.length_penalty,
            "score": self.score.to_json(),
            "seconds": round(self.seconds, 2),
            "sentences_per_second": round(self.sentences_per_second, 2),
        }


def offered_weights(
    folder: Path, names: Iterable[WeightsName], last: int
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Checkpoints by name, first that of the run, and why others are missing; or InputError."""
    file = find_checkpoint(folder, "best")
    best = checkpoint.read_merged(file)
    checkpoint.require_translation(best, file)
    raw = best.get("current_model_state")
    offers = {"single" if raw is None else "ema": translating(best)}
    lacking: dict[str, str] = {}
    for name in names:
        if name in offers:
            continue
        if name == "single":
            offers[name] = translating(best) | {"state_dict": raw}
        elif name == "ema":
            lacking[name] = "the run kept no moving average (callbacks.ema_decay)"
        elif len(newest := newest_checkpoints(folder)[-last:]) > 1:
            offers[name] = average_checkpoints(newest)
        else:
            lacking[name] = "the run kept fewer than two step-*.ckpt (callbacks.keep_last)"
    return offers, lacking


def translating(payload: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint without the state of training."""
    return {key: payload[key] for key in ("state_dict", checkpoint.PORTABLE)}


def with_search(payload: dict[str, Any], search: SearchConfig) -> dict[str, Any]:
    """A checkpoint with this search as its default decoding."""
    portable = payload[checkpoint.PORTABLE]
    config = portable["config"] | {"decoding": asdict(search)}
    return payload | {checkpoint.PORTABLE: portable | {"config": config}}


def sweep(
    offers: Mapping[str, dict[str, Any]], config: SweepConfig, show: Callable[[Trial], None]
) -> list[Trial]:
    """Translate the validation set in each way, first as the run does; ``show`` gets each trial."""
    portable = next(iter(offers.values()))[checkpoint.PORTABLE]
    run, whose = portable["config"], Path("the checkpoint")
    model = build_transformer(typed(ModelConfig, portable["model"], "model"))
    longest = portable.get("longest_source")
    trained = trained_with(checkpoint.Checkpoint(model, portable["tokenizer"], run, whose, longest))
    metrics = config.scoring or typed(MetricsConfig, run["metrics"], "metrics")
    metric = config.metric or metrics.choose
    build_metric(metric, metrics)
    searches = grid(trained.search, config.beam_sizes, config.length_penalties)
    pairs = validation_pairs(typed(DataConfig, run["data"], "data"), config.sentences)
    sources, references = zip(*pairs, strict=True)
    trials: list[Trial] = []

    def attempt(weights: str, search: SearchConfig) -> None:
        """Score and time one combination."""
        checkpoint.load_weights(model, offers[weights], whose)
        translator = in_documents(
            Translator(
                *(model, trained.tokenizer, search, config.batch_tokens, config.device),
                aligner=trained.aligner,
                coverage_head=trained.aligner.head,
                limits=trained.limits,
            )
        )
        translator.translate(sources[:1])  # the first call of a process takes longer
        start = time.perf_counter()
        texts = [found.text for found in translator.translate(sources)]
        seconds = time.perf_counter() - start
        [value] = score(texts, references, (metric,), config=metrics, sources=sources)
        trials.append(Trial(weights, search, value, seconds, len(pairs)))
        show(trials[-1])

    for weights in offers:
        attempt(weights, trained.search)
    chosen = best_trial(trials).weights
    for search in searches:
        if search != trained.search:
            attempt(chosen, search)
    return trials


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the best rounded score; at a tie the first, then the narrowest search."""

    def key(trial: Trial) -> tuple[float, bool, int]:
        value = round(trial.score.value, DECIMALS)
        value = value if trial.score.better == "lower" else -value
        return value, trial is not trials[0], trial.search.width

    return min(trials, key=key)


def grid(
    own: SearchConfig, beam_sizes: Sequence[int], length_penalties: Sequence[float]
) -> list[SearchConfig]:
    """Every beam size with every length penalty; ``greedy``, without penalty, once."""
    neutral = {**NEUTRAL, "nbest": 1}
    greedy = {"algorithm": "greedy", "beam_size": 1, "coverage_penalty": 0.0}
    searches = [replace(own, **{**neutral, **greedy})] if 1 in beam_sizes else []
    for size in sorted({*beam_sizes} - {1}):
        for penalty in sorted({*length_penalties}):
            beam = {"algorithm": "beam", "beam_size": size, "length_penalty": penalty}
            searches.append(replace(own, **{**neutral, **beam}))
    return searches
