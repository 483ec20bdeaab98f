"""The host reads at most once a step of any search, and both ways of leaving a batch agree."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.host_reads import reason_to_wait
from transformer.decoding.batched_search import Conditions, search_batch
from transformer.decoding.constraints.compile import ConstraintCompiler
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search import search as search_module
from transformer.decoding.search.model_step import ModelStep
from transformer.decoding.search.search import Hypothesis


class CountedReads(TorchDispatchMode):
    """Counts the operations that wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += reason_to_wait(func, args) is not None
        return func(*args, **(kwargs or {}))


class CountedLists(TorchFunctionMode):
    """Counts ``tolist`` and ``numpy`` among the reads; the dispatcher does not see them."""

    def __init__(self, reads: CountedReads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads.count += func in (Tensor.tolist, Tensor.numpy, Tensor.cpu)
        return func(*args, **(kwargs or {}))


def count_steps(reads: CountedReads, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The reads of the host before each call of the step of the next search."""
    counts: list[int] = []
    call = ModelStep.__call__

    def counted(step: ModelStep, tokens: Tensor) -> Tensor:
        counts.append(reads.count)
        return call(step, tokens)

    monkeypatch.setattr(ModelStep, "__call__", counted)
    return counts


NOTHING = Constraints()
SEARCHES: dict[str, tuple[dict[str, Any], list[Constraints]]] = {
    "greedy": ({"algorithm": "greedy", "beam_size": 1}, []),
    "beam": ({"nbest": 2, "length_penalty": 1.0}, []),
    "options": ({"no_repeat_ngram": 2, "eos_threshold": 1.5, "min_length": 3}, []),
    "diverse": ({"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.5}, []),
    "sampling": ({"algorithm": "sampling", "nbest": 3, "top_k": 9, "top_p": 0.9}, []),
    "mbr": ({"algorithm": "mbr", "beam_size": 1, "candidates": 4}, []),
    "prefix": ({}, [Constraints(prefix="ein "), NOTHING, Constraints(prefix="der hund"), NOTHING]),
    "never": ({}, [Constraints(never=("ein", "hund")), NOTHING, NOTHING, NOTHING]),
    "must": ({}, [Constraints(must=("hund",)), NOTHING, Constraints(must=("ein", "a")), NOTHING]),
}


def searched(kind: str) -> list[list[Hypothesis]]:
    """Four sentences of different limits."""
    changes, constraints = SEARCHES[kind]
    tokenizer = tiny_tokenizer()
    model = tiny_translator().model
    compiled = None
    if constraints:
        compiled = ConstraintCompiler(tokenizer).compile(constraints, 60, torch.device("cpu"))
    config = search_config(max_length_ratio=1.0, max_length_offset=1, **changes)
    segments = tokenizer.encode_source([source for source, _ in PAIRS])
    conditions = Conditions(compiled, tokenizer.never_written)
    with torch.inference_mode():
        return search_batch(model, segments, config, None, conditions)


def repeat_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search as on a device that is not a CPU."""
    monkeypatch.setattr("transformer.model.attention.kv_cache.repeats_shapes", lambda device: True)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", SEARCHES)
def test_the_host_reads_once_a_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    repeat_shapes(monkeypatch)
    reads = CountedReads()
    counts = count_steps(reads, monkeypatch)
    with reads, CountedLists(reads):
        searched(kind)
    each = [later - earlier for earlier, later in pairwise(counts)]
    # At the first step a CPU looks whether a source is empty.
    assert max(each[1:]) == 1, each
    assert len(each) > 5


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", SEARCHES)
def test_late_reads_and_shapes_that_repeat_change_no_translation(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = searched(kind)
    repeat_shapes(monkeypatch)
    assert_alike(searched(kind), expected)
    monkeypatch.setattr(search_module, "reads_late", lambda device: True)
    calls = count_steps(CountedReads(), monkeypatch)
    ahead: list[int] = []

    class WatchedOutcomes(search_module.Outcomes):
        def read(self) -> Any:
            ahead.append(len(calls) - len(ahead))
            return super().read()

    monkeypatch.setattr(search_module, "Outcomes", WatchedOutcomes)
    assert_alike(searched(kind), expected)
    # Prefixes and banned phrases need numbers of the step before.
    assert max(ahead) == (1 if kind in ("prefix", "never") else 2)
    assert len(calls) - len(ahead) <= 1


def assert_alike(actual: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """The same tokens; the number of rows of a product may change the last bits of a score."""
    assert [[h.tokens for h in row] for row in actual] == [
        [h.tokens for h in row] for row in expected
    ]
    scores = [h.score for row in expected for h in row]
    assert [h.score for row in actual for h in row] == pytest.approx(scores, abs=1e-5)
