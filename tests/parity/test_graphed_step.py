"""A search with CUDA graphs finds what a search without them finds.

On a CPU, calls take the place of replays.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from tests.helpers.decoding.recorders import PlainRecorder
from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import tiny_translator
from tests.helpers.model.host_reads import HostReads
from tests.helpers.model.models import tiny_transformer
from transformer.common.cuda_graphs import GpuRecorder, Recorder
from transformer.common.errors import InputError
from transformer.decoding.batched_search import search_batch
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search import graphed_step
from transformer.decoding.search.graphed_step import (
    GraphedStep,
    StepGraphs,
    few_sizes,
    graphless_reason,
    step_graphs,
)
from transformer.decoding.search.model_step import Ensemble, ModelStep
from transformer.decoding.search.search import Hypothesis
from transformer.model.transformer import Transformer
from transformer.settings.decoding import SearchConfig

T = TypeVar("T")

SEGMENTS = [[4, 5, 6, 7, 8, 9], [8, 9], [10, 11, 12], [4], [5, 6, 7, 8], [*range(4, 23)], [7, 6, 5]]
BATCHES = [SEGMENTS, SEGMENTS[:4], SEGMENTS[2:5], SEGMENTS, SEGMENTS[:4]]
"""Of several sizes, some of which are met again; their sentences end at different positions."""
SEARCHES: dict[str, dict[str, Any]] = {
    "beam": {"beam_size": 5, "nbest": 5, "length_penalty": 1.0},
    "beam of one": {"beam_size": 1},
    "greedy": {"algorithm": "greedy", "beam_size": 1},
    "options": {"no_repeat_ngram": 2, "eos_threshold": 1.5, "min_length": 3},
    "diverse": {"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.5},
    "sampling": {"algorithm": "sampling", "nbest": 3},
    "mbr": {"algorithm": "mbr", "beam_size": 1, "candidates": 4},
    "coverage": {"coverage_penalty": 0.3},
}


def sharp(device: str = "cpu", seed: int = 1, **changes: Any) -> Transformer:
    """A model whose translations end before their limits."""
    model = tiny_transformer(seed=seed, **changes)
    with torch.no_grad():
        model.projection.weight.mul_(4)
    return model.to(device)


def config_of(kind: str) -> SearchConfig:
    return search_config(max_length_ratio=2.0, max_length_offset=3, **SEARCHES[kind])


@torch.inference_mode()
def assert_alike(
    model: Transformer | Ensemble, graphs: list[StepGraphs], config: SearchConfig
) -> None:
    """All batches have the same tokens; sizes of products may change the last bits of scores."""
    for batch in BATCHES:
        expected = search_batch(model, batch, config)
        found = search_batch(model, batch, config, graphs=graphs)
        assert texts(found) == texts(expected)
        assert scores(found) == pytest.approx(scores(expected), abs=2e-5)


def texts(beams: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[hypothesis.tokens for hypothesis in beam] for beam in beams]


def scores(beams: list[list[Hypothesis]]) -> list[float]:
    return [hypothesis.score for beam in beams for hypothesis in beam]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", SEARCHES)
def test_replayed_steps_are_plain_ones(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "beam":  # on a GPU the cache grows, and sentences leave, less often
        monkeypatch.setattr(
            "transformer.model.attention.kv_cache.repeats_shapes", lambda device: True
        )
    model = sharp()
    recorder = PlainRecorder()
    graphs = StepGraphs(model, recorder)
    assert_alike(model, [graphs], config_of(kind))
    assert 0 < recorder.recorded <= recorder.warmed < graphs.replayed


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned"},
        {"positions": "fairseq", "decoder_pattern": "sliding"},
        {"positions": "rotary", "query_key_norm": True, "head_dim": 6},
        {"positions": "alibi", "decoder_pattern": "bigbird", "num_kv_heads": 2},
        {"positions": "relative", "norm": "rms", "scale_scores": False},
        {"attention": "eager", "decoder_pattern": "longformer"},
        {"attention": "flex", "decoder_pattern": "bigbird"},
        {"decoder_layer": "ssru"},
        {"decoder_start": 0, "tie_embeddings": "all", "scale_output": True},
        {"share_layers": "all", "norm_order": "sandwich"},
    ],
    ids=str,
)
def test_every_kind_of_model_has_the_same_translations(changes: dict[str, Any]) -> None:
    model = sharp(**changes)
    graphs = StepGraphs(model, PlainRecorder())
    assert_alike(model, [graphs], config_of("beam"))
    assert_alike(model, [graphs], config_of("greedy"))


@pytest.mark.usefixtures("unchecked")
def test_an_ensemble_has_graphs_of_each_model() -> None:
    models = [sharp(), sharp(seed=2, d_model=32)]
    graphs = [StepGraphs(model, PlainRecorder()) for model in models]
    assert_alike(Ensemble(models), graphs, config_of("beam"))
    assert all(of_model.replayed for of_model in graphs)


@pytest.mark.parametrize("narrow", [False, True])
@torch.inference_mode()
def test_equal_sizes_give_equal_bits(narrow: bool) -> None:
    model = sharp()
    graphs = [StepGraphs(model, PlainRecorder())]
    batch = [[4, 5, 6], [7, 8], [9, 10, 11, 12, 13]]
    for kind in ("greedy", "beam"):
        # The validation of a run in bf16-mixed.
        for autocast in (narrow, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                found = search_batch(model, batch, config_of(kind), graphs=graphs)
                assert found == search_batch(model, batch, config_of(kind))


def test_constraints_are_met_alike() -> None:
    constraints = [Constraints(must=("hund",)), None, Constraints(never=("ein",)), None]
    sources = ["a dog", "a cat runs", "the small dog", "a"]
    plain = tiny_translator()
    expected = plain.translate(sources, constraints)
    graphed = tiny_translator(cuda_graphs=True)
    searcher: Any = graphed.searcher
    recorder = PlainRecorder()
    searcher._graphs = {graphed.device: [StepGraphs(graphed.model, recorder)]}
    for _ in range(2):
        found = graphed.translate(sources, constraints)
        assert [each.text for each in found] == [each.text for each in expected]
        assert [each.unmet for each in found] == [each.unmet for each in expected]
    assert recorder.recorded


@pytest.mark.usefixtures("unchecked")
@torch.inference_mode()
def test_changed_weights_are_read_and_moved_ones_recorded_again() -> None:
    model = sharp()
    recorder = PlainRecorder()
    graphs = StepGraphs(model, recorder)
    assert_alike(model, [graphs], config_of("greedy"))
    recorded = recorder.recorded
    model.projection.weight.mul_(0.7)
    assert_alike(model, [graphs], config_of("greedy"))
    assert recorder.recorded == recorded
    model.projection.weight = torch.nn.Parameter(model.projection.weight * 1.5)
    assert_alike(model, [graphs], config_of("greedy"))
    assert recorder.recorded > recorded


@pytest.mark.usefixtures("unchecked")
@torch.inference_mode()
def test_a_mask_of_heads_in_the_memory_of_another_attention_s_is_recorded_again() -> None:
    model = sharp()
    first, second = (layer.self_attention for layer in model.decoder.layers)
    recorder = PlainRecorder()
    graphs = StepGraphs(model, recorder)
    first.head_mask = torch.tensor([0.0, 1.0, 1.0, 1.0])
    search_batch(model, SEGMENTS, config_of("greedy"), graphs=[graphs])
    recorded = recorder.recorded
    # As where the heads of one layer after another are switched off.
    first.head_mask, second.head_mask = None, first.head_mask
    search_batch(model, SEGMENTS, config_of("greedy"), graphs=[graphs])
    assert recorder.recorded > recorded


@pytest.mark.usefixtures("unchecked")
def test_a_recording_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    model = sharp()
    recorder = PlainRecorder()
    graphs = StepGraphs(model, recorder)
    recorder.error = RuntimeError("operation not permitted when stream is capturing\nmore")
    assert_alike(model, [graphs], config_of("beam"))
    assert [record.message for record in caplog.records] == [
        "decoding.cuda_graphs: no graph from now on, because recording one failed (operation not "
        "permitted when stream is capturing)"
    ]
    assert not graphs.replayed


@pytest.mark.usefixtures("unchecked")
def test_a_recording_without_memory_is_tried_again_with_fewer_sentences() -> None:
    model = sharp()
    recorder = PlainRecorder()
    graphs = StepGraphs(model, recorder)
    recorder.error = RuntimeError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        assert_alike(model, [graphs], config_of("beam"))
    recorder.error = None
    assert_alike(model, [graphs], config_of("beam"))
    assert graphs.replayed


@pytest.mark.usefixtures("unchecked")
def test_more_graphs_than_are_kept_are_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed_step, "MOST_GRAPHS", 3)
    model = sharp()
    recorder = PlainRecorder()
    graphs = StepGraphs(model, recorder)
    assert_alike(model, [graphs], config_of("beam"))
    assert graphs._graphs <= 3 < recorder.recorded


@pytest.mark.usefixtures("unchecked")
@torch.inference_mode()
def test_what_a_failed_search_left_is_not_seen() -> None:
    model = sharp()
    graphs = [StepGraphs(model, PlainRecorder())]
    weight = model.decoder.layers[0].self_attention.value.weight  # type: ignore[union-attr]
    before = weight.clone()
    weight.fill_(torch.nan)
    with pytest.raises(InputError, match="NaN"):
        search_batch(model, SEGMENTS, config_of("beam"), graphs=graphs)
    weight.copy_(before)
    assert_alike(model, graphs, config_of("beam"))


def test_a_translator_says_once_that_a_cpu_has_no_graphs(caplog: pytest.LogCaptureFixture) -> None:
    graphed_step.warn_once.cache_clear()
    translator = tiny_translator(cuda_graphs=True)
    expected = tiny_translator().translate(["a dog", "a cat"])
    for _ in range(2):
        assert translator.translate(["a dog", "a cat"]) == expected
    assert [record.message for record in caplog.records] == [
        "decoding.cuda_graphs: no graph is used, because the model is on device=cpu, not on a CUDA "
        "GPU"
    ]


def test_reasons_against_graphs() -> None:
    gpu = torch.device("cuda")
    assert graphless_reason(sharp(), gpu) is None
    assert "max_length=5000 is more than 4096" in str(graphless_reason(sharp(max_length=5000), gpu))
    assert graphless_reason(sharp(max_length=5000, positions="rotary"), gpu) is None
    assert step_graphs(Ensemble([sharp(), sharp()]), torch.device("cpu")) == []


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 17, 100, 1024])
def test_sizes_are_few_and_near(size: int) -> None:
    assert size <= few_sizes(size) <= 1.25 * size
    assert few_sizes(few_sizes(size)) == few_sizes(size)
    assert len({few_sizes(number) for number in range(1, 1025)}) < 40


@torch.inference_mode()
def test_other_hypotheses_than_all_of_a_size_are_not_read() -> None:
    """Sentences that a batch does not have change nothing, whatever they compute."""
    model = sharp()
    graphs = StepGraphs(model, PlainRecorder())
    source = torch.tensor([[4 + row, 5, 6, 3] for row in range(9)])
    steps = [ModelStep(model, source, 2), GraphedStep(graphs, source, 2)]
    tokens = torch.full((9, 2), 2)
    for number in range(12):
        found: list[Tensor] = [step(tokens) for step in steps]
        torch.testing.assert_close(found[1], found[0])
        tokens = found[0].topk(2 + number % 3).indices[..., -1]
        for step in steps:
            step.reorder(torch.tensor([[number % 2, 0]]).expand(len(tokens), 2))
        if number == 2:
            for step in steps:
                step.keep(torch.tensor([8, 3, 1]))
            tokens = tokens[[8, 3, 1]]
    assert graphs.replayed


class WatchedRecorder(PlainRecorder):
    """Fails if what it records waits for the device, for which ``meta`` stands."""

    def warm_up(self, call: Callable[[], T]) -> T:
        with HostReads() as reads:
            result = super().warm_up(call)
        assert not reads.copies
        return result


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi", "relative"])
@torch.inference_mode()
def test_a_recorded_step_waits_for_nothing(positions: str) -> None:
    model = sharp(
        "meta", positions=positions, decoder_pattern="bigbird", decoder_start=0, num_kv_heads=2
    )
    recorder = WatchedRecorder()
    step = GraphedStep(StepGraphs(model, recorder), torch.zeros(3, 9, device="meta").long(), 2)
    tokens = torch.zeros(3, 2, device="meta").long()
    for _ in range(4):
        step(tokens)
        step.reorder(tokens)
    assert recorder.warmed == 3


@pytest.mark.usefixtures("unchecked")
@pytest.mark.gpu
@pytest.mark.parametrize("kind", SEARCHES)
def test_graphs_of_a_gpu_are_plain_steps(kind: str) -> None:
    model = sharp("cuda")
    recorder: Recorder = GpuRecorder(torch.device("cuda"))
    graphs = StepGraphs(model, recorder)
    assert_alike(model, [graphs], config_of(kind))
    assert graphs.works and graphs.replayed


@pytest.mark.usefixtures("unchecked")
@pytest.mark.gpu
@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
def test_positions_are_recorded_on_a_gpu(positions: str) -> None:
    model = sharp("cuda", positions=positions)
    graphs = StepGraphs(model, GpuRecorder(torch.device("cuda")))
    assert_alike(model, [graphs], config_of("beam"))
    assert graphs.works and graphs.replayed


@pytest.mark.usefixtures("unchecked")
@pytest.mark.gpu
def test_what_was_forgotten_is_recorded_again_on_a_gpu() -> None:
    model = sharp("cuda")
    graphs = StepGraphs(model, GpuRecorder(torch.device("cuda")))
    for _ in range(3):
        before = graphs.replayed
        assert_alike(model, [graphs], config_of("beam"))
        assert graphs.works and graphs.replayed > before
        graphs.clear()


@pytest.mark.usefixtures("unchecked")
@pytest.mark.gpu
def test_a_step_that_waits_for_the_gpu_is_not_recorded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sharp("cuda")
    logits = model.logits

    def waiting(hidden: Tensor) -> Tensor:
        hidden.sum().item()
        return logits(hidden)

    monkeypatch.setattr(model, "logits", waiting)
    graphs = StepGraphs(model, GpuRecorder(torch.device("cuda")))
    assert_alike(model, [graphs], config_of("beam"))
    assert not graphs.works and "recording one failed" in caplog.text
