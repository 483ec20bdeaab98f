"""Flags of translations, and another candidate in place of a failure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.translation.result import Translation
from transformer.decoding.translation.translator import Translator, torch_engine
from transformer.quality.failures.flags import ACTING, Detector
from transformer.quality.failures.monitor import as_output
from transformer.settings.decoding import NEUTRAL, OnFailure

SAMPLES, EPSILON = 16, 0.02
"""Samples of ``resample``, and their least probable token (``epsilon``): Freitag et al. 2023,
"Epsilon Sampling Rocks", take 0.02."""


def with_flags(
    sources: Sequence[str], translations: Sequence[Translation], detector: Detector
) -> list[Translation]:
    """The translations with their ``flags``."""
    return [
        replace(found, flags=detector.flags(source, as_output(found)))
        for source, found in zip(sources, translations, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Flagging:
    """Flags the translations of a translator.

    ``on_failure`` replaces a translation with a flag in ``ACTING``: by the first candidate of the
    beam without one (``next_best``), or the best of ``SAMPLES`` samples without one (``resample``,
    by ``decoding.seed`` and the text). If there is none, or by ``mark``, the translation stays; so
    does one with attention or word links. Raises InputError if the model or the search has no other
    candidates.
    """

    translator: Translator
    detector: Detector
    on_failure: OnFailure | None = None
    candidate_search: Translator | None = field(init=False)
    """Finds the candidates that may replace a translation."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "candidate_search", _candidate_search(self.translator, self.on_failure)
        )

    def __call__(
        self,
        texts: Sequence[str],
        translations: Sequence[Translation],
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[Translation]:
        """The translations of these texts with flags, some replaced."""
        constraints = [None] * len(texts) if constraints is None else constraints
        flagged = with_flags(texts, translations, self.detector)
        if self.candidate_search is None:
            return flagged
        failed = [
            index
            for index, one in enumerate(flagged)
            if _fails(one) and one.attention is None and one.alignment is None
        ]
        if self.on_failure == "resample":  # which cannot look for a phrase
            asked = {index: constraints[index] or Constraints() for index in failed}
            failed = [i for i, one in asked.items() if not (one.must or one.terms)]
        replacements = self.candidate_search.translate(
            [texts[i] for i in failed], [constraints[i] for i in failed]
        )
        for index, other in zip(failed, replacements, strict=True):
            candidates = list(_by_candidate(other, self.translator.search.nbest))
            better = with_flags([texts[index]] * len(candidates), candidates, self.detector)
            if new := next((one for one in better if not _fails(one)), None):
                own = constraints[index]
                flagged[index] = new.checked(own and own.on_source(texts[index]))
        return flagged


def _candidate_search(translator: Translator, on_failure: OnFailure | None) -> Translator | None:
    if on_failure not in ("next_best", "resample"):
        return None
    if translator.device.type == "meta":
        raise InputError(
            f"on_failure={on_failure} searches with the model, which an export for CTranslate2 "
            "alone lacks; give its run"
        )
    search = translator.search
    width = search.candidates if search.algorithm == "mbr" else search.beam_size
    changes: dict[str, Any] = {"nbest": max(width, search.nbest)}
    if on_failure == "resample":
        plain = {"algorithm": "sampling", "beam_size": 1, "nbest": SAMPLES, "epsilon": EPSILON}
        changes = {**NEUTRAL, **plain, "coverage_penalty": 0.0, "shortlist": None}
    elif changes["nbest"] == 1:
        raise InputError(
            "on_failure=next_best needs a search of several candidates; set decoding=beam, or "
            "on_failure=resample"
        )
    return replace(translator, search=replace(search, **changes), engine=torch_engine)


def _fails(translation: Translation) -> bool:
    return bool(ACTING & {*(translation.flags or ())})


def _by_candidate(found: Translation, most: int) -> Iterator[Translation]:
    """The translation with each of its candidates as the best, followed by the others."""
    for index, best in enumerate(found.nbest):
        nbest = (best, *found.nbest[:index], *found.nbest[index + 1 :])[:most]
        yield replace(found, text=best.text, score=best.score, tokens=best.tokens, nbest=nbest)
