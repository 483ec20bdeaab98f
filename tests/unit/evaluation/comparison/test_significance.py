"""The paired tests are sacreBLEU's, and never find a difference where there is none."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer.common.errors import InputError
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
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sacrebleu", "ref", "-i", "bad", "good", "-m", "bleu"),
            *(f"--paired-{test}", f"--paired-{test}-n", str(samples), "--format", "json"),
        ],
        cwd=tmp_path,
        env=os.environ | {"SACREBLEU_SEED": "7"},
        capture_output=True,
        check=True,
    )
    printed = json.loads(done.stdout)
    base, good = bleu_of(BAD, GOOD)
    for ours, theirs in ((base, printed[0]["BLEU"]), (good, printed[1]["BLEU"])):
        assert ours.score == theirs["score"]
        if test == "bs":
            assert (ours.mean, ours.interval) == (theirs["mean"], theirs["ci"])
    ours_p = good.p_bootstrap if test == "bs" else good.p_randomization
    assert ours_p == printed[1]["BLEU"]["p_value"]


def test_all_metrics_are_tested_in_the_callers_order() -> None:
    metrics = [TER(), BLEU(), CHRF()]
    found = paired_tests([BAD, GOOD, GOOD], REFERENCES, metrics, RESAMPLING)
    assert [tested.name for tested in found] == ["TER", "BLEU", "chrF2"]
    assert [tested.better for tested in found] == ["lower", "higher", "higher"]
    os.environ["SACREBLEU_SEED"] = "7"
    try:
        named = [("bad", BAD), ("good", GOOD)]
        _, expected = PairedTest(named, {"x": CHRF()}, [REFERENCES], "bs", n_samples=200)()
    finally:
        del os.environ["SACREBLEU_SEED"]
    base, good, again = found[2].systems
    assert good == again
    assert [one.score for one in (base, good)] == [one.score for one in expected["chrF2"]]
    assert good.p_bootstrap == expected["chrF2"][1].p_value


def test_a_worse_system_differs_surely() -> None:
    base, good = bleu_of(BAD, GOOD)
    assert good.difference == good.score - base.score > 10
    assert good.p_bootstrap is not None and good.p_bootstrap < 0.05
    assert good.p_randomization is not None and good.p_randomization < 0.05
    assert good.is_sure
    assert not base.is_sure
    assert base.difference is base.p_bootstrap is base.p_randomization is None
    _, bad = bleu_of(GOOD, BAD)
    assert bad.difference is not None and bad.difference < -10
    assert bad.is_sure
    base, same = bleu_of(BAD, BAD)
    assert (same.difference, same.p_bootstrap, same.p_randomization) == (0.0, 1.0, 1.0)
    assert not same.is_sure
    assert (base.score, base.mean, base.interval) == (same.score, same.mean, same.interval)


@pytest.mark.parametrize(("lines", "least"), [(1, 1.0), (2, 0.5), (3, 0.25)])
def test_few_sentences_cannot_be_sure(lines: int, least: float) -> None:
    # All 2**lines ways to swap them are equally probable, and two give what was seen.
    changed = [*GOOD[:lines], *REFERENCES[lines:]]
    changed = [line if n >= lines else "nothing" for n, line in enumerate(changed)]
    _, found = bleu_of(REFERENCES, changed)
    assert found.difference is not None and found.difference < 0
    assert found.p_randomization == least
    assert not found.is_sure


@pytest.mark.parametrize("metric", [BLEU(), TER()], ids=["BLEU", "TER"])
def test_another_wrong_word_is_no_difference(metric: Metric) -> None:
    # 36 lines differ, and the metric sees one of them.
    one = [line.replace("the", "xxx", 1) for line in REFERENCES]
    other = [REFERENCES[0], *(line.replace("the", "yyy", 1) for line in REFERENCES[1:])]
    [tested] = paired_tests([one, other], REFERENCES, [metric], RESAMPLING)
    assert tested.systems[1].difference != 0
    assert tested.systems[1].p_randomization == 1.0
    assert not tested.systems[1].is_sure


def test_only_what_a_metric_sees_is_a_difference() -> None:
    upper = ["nothing", *(line.upper() for line in GOOD[1:])]
    metrics = [BLEU(lowercase=True), CHRF(lowercase=True)]
    for tested in paired_tests([GOOD, upper], REFERENCES, metrics, RESAMPLING):
        assert tested.systems[1].difference is not None and tested.systems[1].difference < 0
        assert tested.systems[1].p_randomization == 1.0
    assert bleu_of(GOOD, upper)[1].is_sure
    # chrF sees that "tha" is nearer to "the" than "xxx"; BLEU sees a wrong word twice.
    near = [line.replace("the", "tha") for line in REFERENCES]
    far = ["nothing", *(line.replace("the", "xxx") for line in REFERENCES[1:])]
    bleu, chrf = paired_tests([near, far], REFERENCES, [BLEU(), CHRF()], RESAMPLING)
    assert bleu.systems[1].p_randomization == 1.0
    assert chrf.systems[1].is_sure


def test_signatures_tell_test_samples_and_seed() -> None:
    [tested] = paired_tests([BAD, GOOD], REFERENCES, [BLEU()], RESAMPLING)
    metric = BLEU()
    metric.corpus_score(GOOD, [REFERENCES])
    assert tested.signatures["score"] == str(metric.get_signature())
    assert "|bs:200|seed:7|" in tested.signatures["bootstrap"]
    assert "|ar:400|seed:7|" in tested.signatures["randomization"]
    assert all("version:" in signature for signature in tested.signatures.values())


@pytest.mark.parametrize("before", [None, "99"])
def test_the_seed_of_the_environment_stays(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    else:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    bleu_of(BAD, GOOD)
    assert os.environ.get("SACREBLEU_SEED") == before


def test_what_cannot_be_tested_is_the_users_error() -> None:
    for name in ("bootstrap", "randomization", "seed"):
        with pytest.raises(InputError, match=f"{name}=0 must be at least 1"):
            Resampling(**{"bootstrap": 1, "randomization": 1, "seed": 1, name: 0})
