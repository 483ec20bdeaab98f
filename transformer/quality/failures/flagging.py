"""Flags of translations, and another candidate in place of a failure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.translator import Translation, Translator, torch_engine
from transformer.quality.failures.flags import ACTING, Detector
from transformer.quality.failures.monitor import as_output
from transformer.settings.decoding import NEUTRAL, OnFailure

SAMPLES = 16
"""Samples of ``resample``."""
EPSILON = 0.02
"""Their least probable token (Freitag et al. 2023, "Epsilon Sampling Rocks")."""


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
        flagged = list(map(self._flagged, texts, translations))
        if self.candidate_search is None:
            return flagged
        failed = [
            index
            for index, translation in enumerate(flagged)
            if _fails(translation)
            and translation.attention is None
            and translation.alignment is None
        ]
        constraints = [None] * len(texts) if constraints is None else constraints
        held = [
            translation and translation.on_source(text)
            for translation, text in zip(constraints, texts, strict=True)
        ]
        if self.on_failure == "resample":
            failed = [index for index in failed if not _requires_phrases(held[index])]
        replacements = self.candidate_search.translate(
            [texts[index] for index in failed], [held[index] for index in failed]
        )
        for index, replacement in zip(failed, replacements, strict=True):
            for candidate in _by_candidate(replacement, self.translator.search.nbest):
                new = self._flagged(texts[index], candidate)
                if not _fails(new):
                    flagged[index] = new.checked(held[index])
                    break
        return flagged

    def _flagged(self, source: str, translation: Translation) -> Translation:
        return replace(translation, flags=self.detector.flags(source, as_output(translation)))


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


def _requires_phrases(constraints: Constraints | None) -> bool:
    """Whether a translation must have phrases, for which sampling cannot look."""
    return constraints is not None and bool(constraints.must or constraints.terms)


def _fails(translation: Translation) -> bool:
    return bool(ACTING & {*(translation.flags or ())})


def _by_candidate(translation: Translation, most: int) -> Iterator[Translation]:
    """The translation with each of its candidates as the best, followed by the others."""
    for index, best in enumerate(translation.nbest):
        nbest = (best, *translation.nbest[:index], *translation.nbest[index + 1 :])[:most]
        yield replace(
            translation, text=best.text, score=best.score, tokens=best.tokens, nbest=nbest
        )
