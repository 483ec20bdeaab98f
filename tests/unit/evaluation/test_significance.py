"""The paired tests are sacreBLEU's, and never find a difference where there is none."""

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from tests.helpers.decoding.metrics import RAW
from transformer.evaluation.metrics import build_metric
from transformer.evaluation.sentence_metrics import Gleu
from transformer.evaluation.significance import TestedScore, paired_tests
from transformer.settings.evaluation import Resampling

REFERENCES = [
    f"the {animal} {verb} over the {index} at {hour}"
    for animal in ("dog", "cat", "old horse")
    for verb in ("jumps", "runs")
    for index in ("fence", "wide field", "river")
    for hour in ("noon", "night")
]
# Each third, and each second sentence lacks words.
GOOD = [line if n % 3 else line.replace("the", "one", 1) for n, line in enumerate(REFERENCES)]
BAD = [line if n % 2 else line.split("over")[0] for n, line in enumerate(REFERENCES)]
RESAMPLING = Resampling(bootstrap=200, randomization=400, seed=7)


def bleu_of(*hypotheses: Sequence[str]) -> list[TestedScore]:
    [tested] = paired_tests(hypotheses, REFERENCES, [BLEU()], RESAMPLING)
    return list(tested.systems)


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_numbers_are_what_sacrebleu_prints(test: str, tmp_path: Path) -> None:
    for name, lines in (("ref", REFERENCES), ("bad", BAD), ("good", GOOD)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    samples = {"bs": RESAMPLING.bootstrap, "ar": RESAMPLING.randomization}[test]
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "bad", "good", "-m", "bleu"]
    command += [f"--paired-{test}", f"--paired-{test}-n", str(samples), "--format", "json"]
    environment = os.environ | {"SACREBLEU_SEED": "7"}
    printed = json.loads(subprocess.check_output(command, cwd=tmp_path, env=environment))
    base, good = bleu_of(BAD, GOOD)
    for ours, theirs in ((base, printed[0]["BLEU"]), (good, printed[1]["BLEU"])):
        assert ours.score == theirs["score"]
        if test == "bs":
            assert (ours.mean, ours.interval) == (theirs["mean"], theirs["ci"])
    ours_p = good.p_bootstrap if test == "bs" else good.p_randomization
    assert ours_p == printed[1]["BLEU"]["p_value"]


def test_metrics_keep_their_order_and_signatures_have_test_samples_and_seed() -> None:
    metrics = [TER(), BLEU(), CHRF()]
    tested = paired_tests([BAD, GOOD, GOOD], REFERENCES, metrics, RESAMPLING)
    assert [metric.name for metric in tested] == ["TER", "BLEU", "chrF2"]
    assert [metric.better for metric in tested] == ["lower", "higher", "higher"]
    for metric, result in zip(metrics, tested, strict=True):
        _, good, again = result.systems
        assert good == again
        assert good.score == metric.corpus_score(GOOD, [REFERENCES]).score
        assert result.signatures["score"] == str(metric.get_signature())
        assert "|bs:200|seed:7|" in result.signatures["bootstrap"]
        assert "|ar:400|seed:7|" in result.signatures["randomization"]


def test_a_worse_system_differs_significantly() -> None:
    base, good = bleu_of(BAD, GOOD)
    assert good.difference == good.score - base.score > 10
    assert good.p_bootstrap is not None and good.p_bootstrap < 0.05
    assert good.p_randomization is not None and good.p_randomization < 0.05
    assert good.is_sure
    assert not base.is_sure
    base, same = bleu_of(BAD, BAD)
    assert (same.difference, same.p_bootstrap, same.p_randomization) == (0.0, 1.0, 1.0)
    assert not same.is_sure


def test_only_what_a_metric_counts_is_a_difference() -> None:
    # 36 lines differ, and the metric sees one of them.
    base = [line.replace("the", "xxx", 1) for line in REFERENCES]
    system = [REFERENCES[0], *(line.replace("the", "yyy", 1) for line in REFERENCES[1:])]
    for tested in paired_tests([base, system], REFERENCES, [BLEU(), TER()], RESAMPLING):
        assert tested.systems[1].difference != 0
        assert tested.systems[1].p_randomization == 1.0
        assert not tested.systems[1].is_sure


def test_resamples_of_gleu_are_not_all_in_memory() -> None:
    references = [(line, line.upper()) for line in REFERENCES * 3]
    metric = build_metric("gleu", RAW)
    resampling = Resampling(bootstrap=40, randomization=1)
    tracemalloc.start()
    paired_tests([BAD * 3, GOOD * 3], references, [metric], resampling, sources=REFERENCES * 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A sentence has ten numbers for each draw of the references.
    assert peak < 40 * len(references) * Gleu.DRAWS * 10 * np.dtype("float32").itemsize / 2


@pytest.mark.parametrize("seed", [None, "99"])
def test_the_seed_of_the_environment_stays(
    seed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    if seed is not None:
        monkeypatch.setenv("SACREBLEU_SEED", seed)
    bleu_of(BAD, GOOD)
    assert os.environ.get("SACREBLEU_SEED") == seed
