"""Better weights and a better search for a run, chosen and tested on its validation text."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from transformer.checkpoint import checkpoint
from transformer.checkpoint.averaging import average_checkpoints, newest_checkpoints
from transformer.checkpoint.checkpoint import Loaded
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import validation_pairs
from transformer.decoding.device import find_device, suited_batch_tokens
from transformer.decoding.document_translator import in_documents
from transformer.decoding.translator import Translator, trained_with
from transformer.evaluation.metrics import DECIMALS, Score, build_metric, score
from transformer.evaluation.significance import (
    SURE,
    Resampling,
    TestedScore,
    paired_tests,
)
from transformer.model.build import build_transformer
from transformer.settings.decoding import NEUTRAL, SearchConfig
from transformer.settings.evaluation import TuneConfig, WeightsName
from transformer.settings.metrics import MetricsConfig


@dataclass(frozen=True)
class Trial:
    """Score on the first ``sentences`` of the validation set, and the seconds they take."""

    weights: str
    search: SearchConfig
    score: Score
    seconds: float
    sentences: int
    hypotheses: Sequence[str] = field(default=(), repr=False)

    @property
    def sentences_per_second(self) -> float:
        return self.sentences / self.seconds

    @property
    def label(self) -> str:
        search = self.search
        if search.algorithm == "greedy":
            return f"{self.weights}, greedy"
        beam = f"{search.algorithm} {search.beam_size}"
        return f"{self.weights}, {beam}, penalty {search.length_penalty:.2f}"

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
    """Checkpoints by name, first that of the run, and why others are missing.

    ``last`` is the number of checkpoints in ``average``. Raises InputError if there is no
    checkpoint that translates.
    """
    file = find_checkpoint(folder, "best")
    best = checkpoint.read_merged(file)
    checkpoint.require_translation(best, file)
    raw = best.get("current_model_state")
    offers = {"single" if raw is None else "ema": translating(best)}
    missing: dict[str, str] = {}
    newest = newest_checkpoints(folder)[-last:]
    for name in names:
        if name in offers:
            continue
        if name == "single":
            offers[name] = translating(best) | {"state_dict": raw}
        elif name == "ema":
            missing[name] = "the run kept no moving average (callbacks.ema_decay)"
        elif len(newest) > 1:
            offers[name] = average_checkpoints(newest)
        else:
            missing[name] = "the run kept fewer than two step-*.ckpt (callbacks.keep_last)"
    return offers, missing


def translating(payload: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint without the state of training."""
    return {key: payload[key] for key in ("state_dict", checkpoint.PORTABLE)}


def with_search(payload: dict[str, Any], search: SearchConfig) -> dict[str, Any]:
    """A checkpoint with this search as its default decoding."""
    portable = checkpoint.portable_part(payload)
    portable = replace(portable, config=replace(portable.config, decoding=search))
    return payload | {checkpoint.PORTABLE: portable.to_plain()}


def try_all(
    offers: Mapping[str, dict[str, Any]],
    config: TuneConfig,
    metrics: MetricsConfig,
    show: Callable[["Trial | Challenge"], object],
    loaded: Loaded = lambda checkpoints: None,
) -> "Tuning":
    """Try all weights with the run's own search, then all searches with the chosen weights.

    The best of each replaces the run's own only if a paired test on the whole validation set finds
    it better. Without ``config.metric``, the best is by ``metrics.choose``. ``show`` gets each
    trial, first that of the run itself, and the result of each test; ``loaded`` the model.
    """
    validation = _Validation(offers, config, metrics)
    loaded([validation.checkpoint])
    searches = grid(validation.search, config.beam_sizes, config.length_penalties)
    challenges: list[Challenge] = []
    tried: dict[tuple[str, SearchConfig, int], Trial] = {}

    def attempt(weights: str, search: SearchConfig, sentences: int) -> Trial:
        key = weights, search, sentences
        if key not in tried:
            tried[key] = validation.trial(weights, search, sentences)
            show(tried[key])
        return tried[key]

    def on_all(trial: Trial) -> Trial:
        return attempt(trial.weights, trial.search, validation.size)

    def better(trials: Sequence[Trial]) -> Trial:
        winner = best_trial(trials)
        if winner is trials[0]:
            return winner
        challenge = validation.test(on_all(trials[0]), on_all(winner))
        challenges.append(challenge)
        show(challenge)
        return winner if challenge.wins else trials[0]

    few = min(config.sentences or validation.size, validation.size)
    trials = [attempt(weights, validation.search, few) for weights in offers]
    chosen = better(trials)
    searched = [
        attempt(chosen.weights, search, few) for search in searches if search != validation.search
    ]
    best = better([chosen, *searched])
    return Tuning([*trials, *searched], challenges, best)


@dataclass(frozen=True)
class Challenge:
    """The best new trial beside the run's own, both on the whole validation set.

    ``tested`` is the paired test of the candidate; None if the metric cannot be tested, such as
    one that gives one number for all sentences, and ``reason`` says so.
    """

    current: Trial
    candidate: Trial
    tested: TestedScore | None
    reason: str = ""

    @property
    def gain(self) -> float:
        """Difference of the scores; above 0 the candidate is better."""
        sign = -1 if self.current.score.better == "lower" else 1
        return sign * (self.candidate.score.value - self.current.score.value)

    @property
    def wins(self) -> bool:
        return self.tested is not None and self.tested.is_sure and self.gain > 0

    def __str__(self) -> str:
        """The result in one line."""
        tested = self.tested
        side = "better" if self.gain > 0 else "worse"
        difference = (
            f"{abs(self.gain):.{DECIMALS}f} {self.current.score.name} {side} on all "
            f"{self.current.sentences:,} sentences"
        )
        if tested is not None:
            difference += (
                f", p = {tested.p_bootstrap:.3f} (bootstrap), "
                f"{tested.p_randomization:.3f} (randomization)"
            )
        if self.wins:
            return f"{self.candidate.label} replaces {self.current.label}: {difference}"
        stays = f"{self.current.label} stays: {self.candidate.label} is {difference}"
        if tested is None:
            return f"{stays}; {self.reason}"
        return f"{stays}; below {SURE} is significant" if self.gain > 0 else stays

    def to_json(self) -> dict[str, Any]:
        tested = self.tested
        return {
            "own": self.current.to_json(),
            "other": self.candidate.to_json(),
            "sentences": self.current.sentences,
            "p_bootstrap": None if tested is None else tested.p_bootstrap,
            "p_randomization": None if tested is None else tested.p_randomization,
            "replaces": self.wins,
        }


@dataclass(frozen=True)
class Tuning:
    """All trials, the tests of the best of them, and the trial that is to be the default."""

    trials: Sequence[Trial]
    challenges: Sequence[Challenge]
    best: Trial

    def to_json(self) -> dict[str, Any]:
        return {
            "best": self.best.to_json(),
            "before": self.trials[0].to_json(),
            "trials": [trial.to_json() for trial in self.trials],
            "tests": [challenge.to_json() for challenge in self.challenges],
        }


class _Validation:
    """The validation text, and the model that translates it with any weights and search."""

    def __init__(
        self, offers: Mapping[str, dict[str, Any]], config: TuneConfig, scoring: MetricsConfig
    ) -> None:
        portable = checkpoint.portable_part(next(iter(offers.values())))
        self.name = Path("the checkpoint")
        self.offers = offers
        self.scoring = scoring
        device = find_device(config.device)
        self.batch_tokens = suited_batch_tokens(config.batch_tokens, device)
        with torch.random.fork_rng(devices=[]):  # the weights are loaded later
            self.model = build_transformer(portable.config.model).to(device)
        self.checkpoint = checkpoint.Checkpoint(self.model, portable, self.name)
        self.trained = trained_with(self.checkpoint)
        self.metric = config.metric or scoring.choose
        build_metric(self.metric, scoring)
        self.pairs = validation_pairs(portable.config.data, None)

    @property
    def search(self) -> SearchConfig:
        """The run's own search."""
        return self.trained.search

    @property
    def size(self) -> int:
        return len(self.pairs)

    def trial(self, weights: str, search: SearchConfig, sentences: int) -> Trial:
        """Score and time one combination on the first sentences."""
        trained = self.trained
        checkpoint.load_weights(self.model, self.offers[weights], self.name)
        translator = in_documents(
            Translator(
                self.model,
                trained.tokenizer,
                search,
                self.batch_tokens,
                aligner=trained.aligner,
                coverage_head=trained.aligner.head,
                limits=trained.limits,
            )
        )
        sources, references = zip(*self.pairs[:sentences], strict=True)
        translator.translate(sources[:1])  # the first call of a process takes longer
        start = time.perf_counter()
        texts = [translation.text for translation in translator.translate(sources)]
        seconds = time.perf_counter() - start
        scores = score(texts, references, (self.metric,), config=self.scoring, sources=sources)
        return Trial(weights, search, scores[0], seconds, len(sources), texts)

    def test(self, current: Trial, candidate: Trial) -> Challenge:
        """Test two trials of the whole text, as ``compare`` does."""
        sources, references = zip(*self.pairs, strict=True)
        metric = build_metric(self.metric, self.scoring)
        systems = current.hypotheses, candidate.hypotheses
        try:
            [tested] = paired_tests(systems, references, [metric], Resampling(), sources)
        except InputError as error:  # the metric gives one number for a text
            return Challenge(current, candidate, None, str(error))
        return Challenge(current, candidate, tested.systems[1])


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the best rounded score; at a tie the first, then the narrowest search."""

    def key(trial: Trial) -> tuple[float, bool, int]:
        value = round(trial.score.value, DECIMALS)
        value = value if trial.score.better == "lower" else -value
        return value, trial is not trials[0], trial.search.width

    return min(trials, key=key)


def grid(
    search: SearchConfig, beam_sizes: Sequence[int], length_penalties: Sequence[float]
) -> list[SearchConfig]:
    """Every beam size with every length penalty; ``greedy``, without penalty, once."""
    neutral = {**NEUTRAL, "nbest": 1}
    searches = []
    if 1 in beam_sizes:
        greedy = {"algorithm": "greedy", "beam_size": 1, "coverage_penalty": 0.0}
        searches.append(replace(search, **(neutral | greedy)))
    for size in sorted({*beam_sizes} - {1}):
        for penalty in sorted({*length_penalties}):
            beam = {"algorithm": "beam", "beam_size": size, "length_penalty": penalty}
            searches.append(replace(search, **(neutral | beam)))
    return searches
