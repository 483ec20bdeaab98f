"""Searches in two stages: all weights with the run's own search, then the best with every search.

Each pair of beam size and length penalty is a search of its own, as the penalty decides when a beam
stops. It does not know how results are shown or saved.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from transformer.common.errors import InputError
from transformer.common.schema import typed
from transformer.data.config import DataConfig
from transformer.data.corpora.evaluation_text import validation_pairs
from transformer.data.text.parallel import Pair
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.trained import trained_with
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import MetricsConfig, Score, score
from transformer.model.build import build_transformer
from transformer.model.checkpoint.checkpoint import PORTABLE, Checkpoint, load_weights
from transformer.model.config import ModelConfig
from transformer.runs.tuning.trial import Trial, best_trial, grid

METRICS = ("bleu", "chrf")
"""A higher value of each is better."""


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The searches to try, and the text.

    Attributes:
        beam_sizes: 1 is greedy search.
        length_penalties: For each beam size from 2 on.
        metric: One of ``METRICS``, computed as in the validation of the run.
        sentences: Number of sentences from the start of the validation set; None takes all.
        batch_tokens: See ``Translator``.
        device: See ``Translator``.

    Raises:
        InputError: A value is out of its range.
    """

    beam_sizes: Sequence[int]
    length_penalties: Sequence[float]
    metric: str
    sentences: int | None
    batch_tokens: int
    device: torch.device

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError(f"metric={self.metric} is unknown; choose {' or '.join(METRICS)}")
        if not self.length_penalties and any(size > 1 for size in self.beam_sizes):
            raise InputError("length_penalties=[] leaves no beam to try; give at least one")


def sweep(
    offers: Mapping[str, dict[str, Any]], config: SweepConfig, show: Callable[[Trial], None]
) -> list[Trial]:
    """Translate the validation set of the run in each way; the first is the run's own.

    Args:
        offers: Checkpoints of one run by the name of their weights; the run translates with the
            first.
        config: The searches to try, and the text.
        show: Called with each trial as it ends.

    Raises:
        InputError: The validation set is missing, or a search is not valid.
    """
    portable = next(iter(offers.values()))[PORTABLE]
    run = portable["config"]
    model = build_transformer(typed(ModelConfig, portable["model"], "model"))
    whose = Path("the checkpoint")
    trained = trained_with(Checkpoint(model, portable["tokenizer"], run, whose))
    own = trained.search
    searches = grid(own, config.beam_sizes, config.length_penalties)
    pairs = validation_pairs(typed(DataConfig, run["data"], "data"), config.sentences)
    trials: list[Trial] = []
    compare = partial(
        score, metrics=(config.metric,), config=typed(MetricsConfig, run["metrics"], "metrics")
    )

    def attempt(weights: str, search: SearchConfig) -> None:
        load_weights(model, offers[weights], whose)
        translator = Translator(
            *(model, trained.tokenizer, search, config.batch_tokens, config.device),
            aligner=trained.aligner,
            coverage_head=trained.aligner.head,
        )
        trials.append(_trial(weights, translator, pairs, compare))
        show(trials[-1])

    for weights in offers:
        attempt(weights, own)
    chosen = best_trial(trials).weights
    for search in searches:
        if search != own:
            attempt(chosen, search)
    return trials


def _trial(
    weights: str,
    translator: Translator,
    pairs: Sequence[Pair],
    compare: Callable[[list[str], Sequence[str]], list[Score]],
) -> Trial:
    sources, references = zip(*pairs, strict=True)
    # The first call of a process takes longer.
    in_documents(translator).translate(sources[:1])
    start = time.perf_counter()
    found = in_documents(translator).translate(sources)
    seconds = time.perf_counter() - start
    (value,) = compare([one.text for one in found], references)
    return Trial(weights, translator.search, value, seconds, len(pairs))
