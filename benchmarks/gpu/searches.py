"""Rows of ``python -m benchmarks.gpu`` on searches, beside Hugging Face's with the same weights.

It does not know how well a model translates: weights and sentences are random.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.gpu.measure import Bench, Values
from benchmarks.gpu.models import built
from benchmarks.support.engines import Ours, hugging_face
from transformer.decoding.search import search as search_module
from transformer.settings.decoding import SearchConfig

if TYPE_CHECKING:
    from benchmarks.support.engines import Pieces, Translate

BATCH_TOKENS = 65_536
"""Of a batch of ours, counted once a hypothesis, as in ``trainer=gpu``."""
LENGTH = 25
"""Subwords of every translation: random weights end nowhere."""
SOURCES = (5, 40)
"""Subwords of a source, from and to."""


def search(
    bench: Bench,
    sentences: int,
    *,
    greedy: bool = False,
    graphs: bool = False,
    late: bool | None = None,
) -> Values:
    """A search of ours in bfloat16, with ``decoding.cuda_graphs`` or without.

    ``late`` is whether flags are read late, None as usual.
    """
    model = built(bench, "base").eval()
    config = forced_search(bench, greedy=greedy, graphs=graphs)
    usual = search_module.reads_late
    search_module.reads_late = usual if late is None else lambda device: late
    try:
        translate = Ours(model, "bfloat16", config)
        values = measured(bench, translate, sentences, BATCH_TOKENS)
    finally:
        search_module.reads_late = usual
    replayed = sum(graphs.replayed for graphs in translate.graphs)
    return values | {"replays": replayed} if config.cuda_graphs else values


def hugging_face_beam(bench: Bench, sentences: int) -> Values:
    """``generate`` of Hugging Face's Marian in bfloat16, with all sentences in a batch."""
    model = built(bench, "base").eval()
    translate = hugging_face(model, torch.bfloat16, forced_search(bench))
    return measured(bench, translate, sentences, bench.of(sentences))


def forced_search(bench: Bench, *, greedy: bool = False, graphs: bool = False) -> SearchConfig:
    """Greedy or beam search with 5 hypotheses, which are all equally long."""
    length = LENGTH if bench.small == 1 else 3
    return SearchConfig(
        algorithm="greedy" if greedy else "beam",
        beam_size=1 if greedy else 5,
        cuda_graphs=graphs,
        length_penalty_form="average",
        min_length=length,
        max_length_ratio=0.0,
        max_length_offset=length,
    )


def measured(bench: Bench, translate: "Translate", sentences: int, batch: int) -> Values:
    """Sentences a second."""
    random = np.random.default_rng(1)
    lengths = random.integers(*SOURCES, bench.of(sentences), endpoint=True)
    sources: list[Pieces] = [random.integers(4, bench.vocabulary, n).tolist() for n in lengths]
    timing = bench.time(lambda: translate(sources, batch))
    return {"sentences/s": len(sources) / timing["ms"] * 1000, **timing}
