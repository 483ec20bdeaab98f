"""A translation with a flag is marked, or another candidate without one takes its place."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.decoding.translators import tiny_translator
from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.translator import Translation
from transformer.quality.failures.flagging import SAMPLES, Flagging
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.thresholds import Thresholds
from transformer.settings.decoding import OnFailure

TEXTS = ["a dog runs .", "two cats sleep .", "", "the dog sees a cat ."]


class Choosy(Detector):
    """Flags all texts but some."""

    def __init__(self, good: Sequence[str] = ()) -> None:
        super().__init__(Thresholds())
        self.good = good

    def flags(self, source: str, output: Output, reference: str | None = None) -> tuple[str, ...]:
        return () if output.text in self.good or not source else ("repetition", "low_confidence")


def flagging(on_failure: OnFailure | None, good: Sequence[str] = (), **changes: Any) -> Flagging:
    return Flagging(tiny_translator(nbest=1, **changes), Choosy(good), on_failure)


def translate(
    flags: Flagging,
    texts: Sequence[str] = TEXTS,
    constraints: Sequence[Constraints | None] | None = None,
    **more: Any,
) -> list[Translation]:
    return flags(texts, flags.translator.translate(texts, constraints, **more), constraints)


def plain(**changes: Any) -> list[Translation]:
    return tiny_translator(**changes).translate(TEXTS)


@pytest.mark.parametrize("on_failure", [None, "mark"])
def test_marks_change_no_translation(on_failure: OnFailure | None) -> None:
    found = translate(flagging(on_failure), TEXTS, alignment=True)
    assert [one.flags for one in found] == [("repetition", "low_confidence")] * 2 + [
        (),
        ("repetition", "low_confidence"),
    ]
    assert found[0].to_json()["flags"] == found[0].flags
    assert [replace(one, flags=None) for one in found] == plain(nbest=1)
    assert all(one.alignment is not None for one in found)


def test_the_next_best_of_the_beam_is_taken() -> None:
    width = 4
    distinct: dict[str, Any] = {"ffn_dim": 64}  # the candidates of a sentence have different texts
    beams = plain(beam_size=width, nbest=width, **distinct)
    third = beams[1].nbest[2]
    found = translate(flagging("next_best", [third.text], beam_size=width, **distinct))
    assert (found[1].text, found[1].tokens) == (third.text, third.tokens)
    assert found[1].flags == ()
    linked = translate(
        flagging("next_best", [third.text], beam_size=width, **distinct), TEXTS, alignment=True
    )
    assert linked[1].flags and linked[1].text == beams[1].text
    assert linked[1].alignment is not None
    for one, beam in zip(found, beams, strict=True):
        others = [candidate.text for candidate in beam.nbest]
        assert one.text == (third.text if third.text in others else others[0])


def test_the_other_candidates_follow_the_one_that_is_taken() -> None:
    beam = plain(beam_size=4, nbest=4, ffn_dim=64)[1].nbest
    translator = tiny_translator(beam_size=4, nbest=3, ffn_dim=64)
    flags = Flagging(translator, Choosy([beam[2].text]), "next_best")
    [translation] = translate(flags, TEXTS[1:2])
    assert [candidate.text for candidate in translation.nbest] == [beam[n].text for n in (2, 0, 1)]
    assert translation.score == pytest.approx(beam[2].score)  # that of a batch of several sentences
    with pytest.raises(InputError, match="next_best needs a search of several candidates"):
        flagging("next_best", algorithm="greedy", beam_size=1)


def test_samples_are_drawn_until_one_has_no_flag() -> None:
    samples = plain(
        algorithm="sampling", beam_size=1, nbest=SAMPLES, epsilon=0.02, length_penalty=1.0
    )
    last = samples[0].nbest[-1].text
    changes: dict[str, Any] = {"length_penalty": 1.0}
    found = translate(flagging("resample", [last], **changes))
    assert found[0].text == last and found[0].flags == ()
    again = translate(flagging("resample", [last], **changes), TEXTS[:1])
    assert again[0].text == last
    # A term asks for nothing where the source lacks it.
    term = Constraints(terms=(("xylophone", "hund"),))
    assert translate(flagging("resample", [last], **changes), TEXTS[:1], [term])[0].text == last
    other = translate(flagging("resample", [last], seed=7, **changes), TEXTS[:1])
    assert other[0].flags and other[0].text == plain(nbest=1, **changes)[0].text


def test_constraints_hold_for_what_is_taken() -> None:
    must = Constraints(must=("hund",))
    found = translate(flagging("next_best", beam_size=4), TEXTS[:1], [must])
    assert found[0].unmet == () and found[0].flags
    # Sampling cannot look for a phrase.
    assert translate(flagging("resample", beam_size=4), TEXTS[:1], [must])[0].unmet == ()
