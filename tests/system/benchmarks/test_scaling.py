"""What ranks send is what the formulas of the page take, and its table is that of the command."""

from pathlib import Path

import pytest

from benchmarks.training import scaling
from tests.helpers.runs.runs import SMALL, corpus_overrides

PAGE = Path(__file__).parents[3] / "benchmarks" / "training" / "README.md"


@pytest.mark.thorough
def test_two_processes_send_what_the_formula_says(tmp_path: Path) -> None:
    small = [*corpus_overrides(tmp_path), *SMALL, "data.batch_tokens=128", "report=none"]
    folders = {ranks: tmp_path / str(ranks) for ranks in (1, 2)}
    for ranks, folder in folders.items():
        scaling.train(ranks, folder, 4, small)
    assert scaling.largest_differences(*folders.values())[1] < 1e-5
    (alone,), pair = map(scaling.counted, folders.values())
    assert not scaling.collectives(alone["update"])
    assert [rank["read"]["micro-batches"] for rank in (alone, *pair)] == [32, 16, 16]
    assert alone["read"]["pairs"] == sum(rank["read"]["pairs"] for rank in pair)
    gradients = sum(weight.nbytes for weight in scaling.weights(folders[1]).values())
    for rank in pair:
        update = rank["update"]
        assert update["times"] == 2
        # The gradients, and one message of totals.
        assert update["allreduce"] == 2 * 2
        assert 0 <= update["bytes of allreduce"] - 2 * gradients < 200
        assert update["sent"] == pytest.approx(2 * gradients, rel=0.02)


@pytest.mark.slow
def test_the_page_has_the_table_of_the_command() -> None:
    assert "\n".join(scaling.derived_table()) in PAGE.read_text(encoding="utf-8")
