"""The loss without a head against forced decoding, and rankings of costs set by hand."""

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.helpers.model.models import tiny_transformer
from transformer.data.batching.batch import collate
from transformer.data.tokenization.tags import Tags
from transformer.decoding.forced_decoding import score_targets
from transformer.decoding.translator import Translator
from transformer.evaluation.head_ablation import ForcedLoss, ablate, metric_scorer
from transformer.model.head_masks import (
    HeadName,
    attention_heads,
    heads_off,
    parse_heads,
    switch_off,
)
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig

SOURCES = [[7, 8, 9], [5], [6, 6, 11, 12, 13, 14], [], [4, 20]]
TARGETS = [[10, 11], [21, 22, 23, 4, 5], [6, 7], [8], []]


@pytest.mark.parametrize("names", [[], ["encoder.1.0", "cross.1.3"]])
def test_the_loss_is_the_mean_over_all_target_tokens(names: list[str]) -> None:
    model = tiny_transformer()
    twin = tiny_transformer()
    off = parse_heads(model, names)
    switch_off(twin, off)
    batch = collate(SOURCES, TARGETS)
    rows = batch.target_input, batch.target_output
    scores = score_targets(twin, twin.encode(batch.source), *rows)
    tokens = sum(len(target) + 1 for target in TARGETS)
    loss = ForcedLoss(model, SOURCES, TARGETS, batch_tokens=16)
    assert loss(off) == pytest.approx(-float(scores.sum()) / tokens, rel=1e-5)
    assert loss.target_tokens == tokens


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = tiny_transformer(dropout=0.5).train()
    loss = ForcedLoss(model, SOURCES, TARGETS)
    without = loss(attention_heads(model)[:3])
    assert model.training and model.encoder.training
    assert heads_off(model) == []
    # Dropout would make the second differ.
    assert loss(attention_heads(model)[:3]) == without
    # Heads that are off stay off while others are measured.
    model = tiny_transformer()
    first, second = parse_heads(model, ["encoder.0.1", "cross.0.0"])
    both = ForcedLoss(model, SOURCES, TARGETS)([first, second])
    switch_off(model, [first])
    assert ForcedLoss(model, SOURCES, TARGETS)([second]) == pytest.approx(both, rel=1e-6)


def test_a_metric_counts_all_right_targets_of_a_source(tmp_path: Path) -> None:
    text = tmp_path / "answers.tsv"
    text.write_text("who\tAnn\nwhere\there\nwho\tBob\n")
    files = {"train": str(text), "validation": str(text), "test": str(text)}
    data = DataConfig(corpus="files", **files, repeated_sources=True)
    translator = Mock(
        Translator,
        model=tiny_transformer(),
        tokenizer=Mock(tags=Tags()),
        translate=lambda sources: [Mock(text="Bob") for _ in sources],
    )
    scorer = metric_scorer(translator, RunConfig(data=data), "validation", 500, "exact_match")
    assert scorer.measure([]) == 50
    assert scorer.measured.startswith("2 sentence")


def worth(name: HeadName) -> float:
    """Costs by hand: 100s of the kind, 10s of the layer, the head; heads 0 and 3 swap places."""
    kind = ("encoder", "decoder", "cross").index(name.kind)
    return 100 * kind + 10 * name.layer + (3, 1, 2, 0)[name.head]


def loss(off: Sequence[HeadName]) -> float:
    return 5.0 + sum(map(worth, off))


def test_the_costliest_head_comes_first() -> None:
    model = tiny_transformer()
    by_loss = ablate(model, loss, "lower", []).single
    by_score = ablate(model, lambda off: -loss(off), "higher", []).single
    order = sorted(attention_heads(model), key=worth, reverse=True)
    assert list(by_loss) == list(by_score) == order
    worst = by_loss[order[0]]
    assert list(map(str, worst.off)) == ["cross.1.0"]
    assert (worst.score, worst.difference) == (218.0, 213.0)
    assert by_score[order[0]].difference == -213.0


def test_pruning_takes_the_cheapest_heads_and_more_and_more() -> None:
    pruned = ablate(tiny_transformer(), loss, "lower", [1.0, 0.1, 0.01]).pruned
    assert list(pruned) == [0.01, 0.1, 1.0]
    # Of 24 heads none, two and all.
    assert [len(ablation.off) for ablation in pruned.values()] == [0, 2, 24]
    assert list(map(str, pruned[0.1].off)) == ["encoder.0.3", "encoder.0.1"]
    assert (pruned[0.01].difference, pruned[0.1].difference) == (0.0, 1.0)


def test_heads_that_are_off_are_not_ranked() -> None:
    model = tiny_transformer()
    off = parse_heads(model, ["encoder.0.0", "encoder.0.1", "encoder.0.2", "cross.0.0"])
    switch_off(model, off)
    assert set(ablate(model, loss, "lower", []).single) == set(attention_heads(model)) - set(off)
