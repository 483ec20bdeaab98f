"""A translator that ignores a disturbance loses nothing by it, and one that follows it is right."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from transformer.data.text_noise import DISTURBANCES
from transformer.data.tokenization.tags import SourceTags, TaggedText, parse_tags
from transformer.decoding.translator import Candidate, Translation, Translator
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.thresholds import Thresholds
from transformer.quality.stress import StressReport, StressTest, sample_size
from transformer.settings.metrics import MetricsConfig

TEXTS = [
    (f"the {animal} number {n} sees the {other} , and it runs .", (f"x{n} y {animal} z {n} w .",))
    for n, (animal, other) in enumerate([("dog", "cat"), ("bird", "horse"), ("fish", "snake")] * 4)
]


class Fake(Translator):
    """Translates with a function; its outputs have no flags of their own."""

    def __init__(self, translate: Callable[[str], str]) -> None:
        self.function, self.seen = translate, list[str]()

    def translate(self, texts: Sequence[str], *_: Any, **__: Any) -> list[Translation]:
        self.seen += texts
        candidates = (Candidate(self.function(text), 0.0, -1.0, ("x",), 2) for text in texts)
        return [Translation(one.text, one.score, one.tokens, (one,), ("x",)) for one in candidates]


def stress(
    translate: Callable[[str], str], *names: str, metric: str = "bleu", **changes: Any
) -> StressReport:
    test = StressTest(
        Fake(translate),
        Detector(Thresholds()),
        **({"texts": TEXTS, "metrics": MetricsConfig(), "metric": metric} | changes),
    )
    return test.run(names)


CLEAN = {source: targets[0] for source, targets in TEXTS}


def test_a_translator_of_clean_text_alone_loses_everything_else() -> None:
    report = stress(lambda text: CLEAN.get(text, "nothing"), *DISTURBANCES)
    assert report.clean == pytest.approx(100) and report.metric == "BLEU"
    assert "tok:13a" in report.signature and report.sentences == len(TEXTS)
    found = {one.name: one for one in report.disturbances}
    assert list(found) == list(DISTURBANCES)
    lower = found["lower"]
    assert (lower.changed, lower.loss, lower.unchanged) == (0, 0, 100)
    typo = found["typo_1"]
    assert (typo.changed, typo.unchanged) == (100, 0) and (typo.loss or 0) > 99
    assert typo.agreement is not None and typo.agreement < 10
    assert (found["single_word"].score, found["single_word"].loss) == (None, None)
    assert (found["empty"].inputs, found["empty"].unchanged) == (1, 0)
    assert (found["joined"].inputs, found["very_long"].inputs) == (6, 1)
    report = stress(lambda text: "" if "fish" in text else CLEAN.get(text, ""), "upper")
    assert report.clean_failures["empty"] == 4
    assert report.disturbances[0].failures["empty"] == len(TEXTS)

    report = stress(lambda text: CLEAN.get(text, "nothing"), "typo_1", metric="ter")
    # A lower TER is better, and a loss is positive.
    assert (report.disturbances[0].loss or 0) > 50


def test_a_sample_takes_about_as_long_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, sources = Fake(str), [str(number) for number in range(1000)]
    # 20 translations of n sentences take n / 10 seconds.
    monkeypatch.setattr(
        "transformer.quality.stress.perf_counter", lambda: 0.005 * (len(translator.seen) - 1)
    )
    sizes = []
    for seconds in (0.1, 6.0, 14.0, 900.0):
        translator.seen.clear()
        sizes.append(sample_size(translator, sources, 20, seconds))
    assert sizes == [20, 50, 100, 1000]


def test_a_translator_that_follows_the_reference_loses_nothing() -> None:
    uppercase = {source.upper(): target.upper() for source, target in CLEAN.items()}
    joined = {f"{a} {b}": f"{CLEAN[a]} {CLEAN[b]}" for a, b in pairwise(CLEAN)}
    known = CLEAN | uppercase | joined
    report = stress(known.__getitem__, "upper", "joined")
    for one in report.disturbances:
        assert (one.loss, one.agreement, one.unchanged) == (0, 100, None)


def test_no_loss_has_no_sign() -> None:
    """A metric whose lower values are better changes the sign of the difference."""
    [one] = stress(CLEAN.__getitem__, "lower", metric="ter").disturbances
    assert str(one.loss) == "0.0"


def test_tags_of_a_source_and_all_references_stay() -> None:
    tags = SourceTags(target="de")
    texts = [(TaggedText(source, tags), (*targets, "second .")) for source, targets in TEXTS]
    fake = Fake(lambda text: "second .")
    test = StressTest(fake, Detector(Thresholds()), texts, MetricsConfig(), "chrf")
    report = test.run(["typo_1", "no_final_punctuation"])
    assert {parse_tags(text) for text in fake.seen} == {tags}
    # The second reference loses its full stop, the output does not.
    assert [(one.loss or 0) > 0 for one in report.disturbances] == [False, True]


def test_numbers_change_in_the_references_that_have_those_of_the_source() -> None:
    texts = [("2 dogs", ("zwei Hunde", "2 Hunde")), ("2 cats", ("2 Katzen", "zwei Katzen"))]
    test = StressTest(Fake(str.upper), Detector(Thresholds()), texts, MetricsConfig(), "chrf")
    dogs, cats = (test._disturbed(DISTURBANCES["numbers"], [index]) for index in (0, 1))
    assert dogs == texts[0]
    source, references = cats
    assert source != "2 cats" and references == (source.replace("cats", "Katzen"),)
    # The numbers of an output change with those of its source, not with its own.
    [numbers] = test.run(["numbers"]).disturbances
    assert (numbers.changed, numbers.agreement) == (50, 100)


def test_texts_of_different_tags_are_not_joined() -> None:
    texts = [
        (TaggedText(f"text {n} .", SourceTags(target=code)), (f"{code} {n} .",))
        for n, code in enumerate(("de", "de", "de", "fr", "fr"))
    ]
    fake = Fake(lambda text: text)
    StressTest(fake, Detector(Thresholds()), texts, MetricsConfig(), "bleu").run(["joined"])
    assert fake.seen[5:] == ["text 0 . text 1 .", "text 2 .", "text 3 . text 4 ."]
    assert [parse_tags(text).target for text in fake.seen[5:]] == ["de", "de", "fr"]
