"""Each flag is found in outputs that fail by rule, and in nearly no right one."""

import pytest

from benchmarks.data.failures import (
    labeled,
    pocket_detector,
    precision_and_recall,
    read_pairs,
)
from transformer.common.schema import typed
from transformer.data.corpora.resolve import pocket_text
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, TaggedText
from transformer.quality.failures.flags import FLAGS, Detector, Output
from transformer.quality.failures.thresholds import Thresholds
from transformer.settings.data import DataConfig

POCKET = read_pairs(*(pocket_text(language)["test"] for language in ("en", "de")))
BY_THE_SEARCH = {"unfinished", "low_confidence"}


@pytest.fixture(scope="module")
def detector() -> Detector:
    return pocket_detector()


def test_flags_are_precise_and_find_what_was_made(detector: Detector) -> None:
    kinds = labeled(POCKET, 200)
    assert {*kinds} == {*FLAGS} - BY_THE_SEARCH
    assert all(len(made) >= 198 for made in kinds.values())
    assert all(sum(one.fails for one in made) * 2 == len(made) for made in kinds.values())
    for name, (precision, recall) in precision_and_recall(detector, kinds).items():
        assert precision >= 0.95, name
        assert recall >= 0.9, name


def test_right_outputs_have_nearly_no_flag(detector: Detector) -> None:
    flags = [detector.flags(source, Output(target)) for source, target in POCKET]
    assert sum(map(bool, flags)) <= 0.02 * len(flags)


@pytest.mark.parametrize(
    ("source", "text", "flags"),
    [
        ("", "Ein Hund.", ""),
        ("A dog.", " ", "empty"),
        ("Is there a dog?", "?", "empty"),
        ("No, no!", "Nein nein nein!", "repetition"),
        ("She laughs.", "Sie lacht hahahahahaha.", "repetition"),
        ("There are 1,500 dogs.", "Es sind 1.500 Hunde.", ""),
        ("There are 1500 dogs.", "Es sind 1600 Hunde.", "numbers"),
        ("There are 1500 dogs.", "Es sind Hunde.", "numbers"),
        ("There are 2 dogs.", "Es sind zwei Hunde.", ""),
        (f"There are {'7' * 5000} dogs.", "Es sind viele Hunde.", "numbers"),
        ("Write to {name} now.", "Schreib jetzt an {Name}.", "placeholders"),
        ("Write to <x>me</x> now.", "Schreib jetzt an mich.", "placeholders"),
        ("What is <unk> for?", "Wozu ist <unk> da?", ""),
        ("What is it for?", "Wozu ist \u2047 da?", "unknown"),
        ("Hotel Adlon Kempinski Berlin", "Hotel Adlon Kempinski Berlin", ""),
        ("The dog sleeps.", "the dog sleeps", "copy"),
        ("The dog is in the house of my sister.", "Собака спит в доме.", "wrong_language"),
    ],
)
def test_single_outputs(detector: Detector, source: str, text: str, flags: str) -> None:
    found = {*detector.flags(source, Output(text))} - {"under_translation", "over_translation"}
    assert found == {*flags.split()}


@pytest.mark.parametrize(
    ("text", "is_copy"),
    [
        ("الرجل يقرأ كتابا جديدا في الحديقة", True),
        ("我喜欢在早上喝一杯热咖啡，因为它让我清醒。", True),
        # A name, which has no capital.
        ("北京大学", False),
        ("12 345 67", False),
    ],
)
def test_copies_in_scripts_without_capitals(text: str, is_copy: bool) -> None:
    detector = Detector(Thresholds((("en", "de"),)), detects=False)
    assert ("copy" in detector.flags(text, Output(text))) is is_copy


@pytest.mark.parametrize("codes", [("eng_Latn", "deu_Latn"), ("eng", "deu"), ("en_XX", "de_DE")])
def test_languages_have_codes_of_two_letters_or_three(codes: tuple[str, str]) -> None:
    detector = Detector(Thresholds.fit([], DataConfig(source=codes[0], target=codes[1])))
    source = "The committee did not agree on the budget yesterday."
    assert detector.flags(source, Output(source)) == ("copy",)
    french = "Le comité n'est pas parvenu hier à un accord sur le budget."
    assert detector.flags(source, Output(french)) == ("wrong_language",)


def test_an_output_is_in_the_language_that_the_tags_ask_for(detector: Detector) -> None:
    usual = detector.thresholds
    source = "The committee did not agree on the budget yesterday."
    french = Output("Le comité n'est pas parvenu hier à un accord sur le budget.")
    asked = SourceTags("fr", source="en")
    for tags, text in ((asked, source), (UNTAGGED, TaggedText(source, asked))):
        found = Detector(usual, tags=tags)
        assert found.flags(text, french) == ()
        assert found.flags(text, Output(source)) == ("copy",)
    assert "wrong_language" in Detector(usual, tags=SourceTags("de")).flags(source, french)


def test_the_search_tells_what_is_unfinished_or_unlikely() -> None:
    detector = Detector(Thresholds(low_confidence=-2.0))
    assert detector.flags("A dog.", Output("Ein Hund.", -1.9)) == ()
    assert detector.flags("A dog.", Output("Ein Hund.", -2.1)) == ("low_confidence",)
    assert detector.flags("A dog.", Output("Ein Hund.", -1.9, True)) == ("unfinished",)
    assert detector.flags("A dog.", Output("Ein Hund.")) == ()
    # Without lengths of a run, only those that no direction has are flagged.
    source = "The dog sleeps in the house of my sister."
    assert detector.flags(source, Output("Der Hund schläft im Haus.")) == ()
    assert detector.flags(source, Output("Der")) == ("under_translation",)


@pytest.mark.parametrize(
    ("data", "absent"),
    [
        ({"source": "en", "target": "de"}, "low_confidence"),
        ({"source": "word", "target": "phones"}, "copy wrong_language low_confidence"),
        (
            {"source": "en", "target": "de", "corpora": {"a": {}, "b": {"target": "fr"}}},
            "wrong_language low_confidence",
        ),
    ],
)
def test_flags_without_sense_are_left_out(data: dict[str, object], absent: str) -> None:
    detector = Detector(Thresholds.fit(POCKET[:300], typed(DataConfig, data, "data")))
    assert {*FLAGS} - {*detector.names} == {*absent.split()}
    found = detector.flags("A dog sleeps in the house.", Output("A dog sleeps in the house."))
    assert ("copy" in found) is ("copy" in detector.names)
