"""A translator that flags its translations, and may take another one in place of a failure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.translation.result import Translation
from transformer.decoding.translation.translator import Translator
from transformer.quality.failures.flags import ACTING, Detector
from transformer.quality.failures.monitor import as_output
from transformer.settings.decoding import NEUTRAL, OnFailure, SearchConfig

SAMPLES, EPSILON = 16, 0.02
"""Samples of ``resample``, and their least probable token (``epsilon``): Freitag et al. 2023,
"Epsilon Sampling Rocks", take 0.02."""


class FlaggingTranslator(Translator):
    """A translator whose translations have ``flags``.

    ``on_failure`` replaces a translation with a flag in ``ACTING``: by the first candidate of the
    beam without one (``next_best``), or the best of ``SAMPLES`` samples without one (``resample``,
    by ``decoding.seed`` and the text). If there is none, or by ``mark``, the translation stays.
    Raises InputError if the model or the search has no other candidates.
    """

    def __init__(
        self, translator: Translator, detector: Detector, on_failure: OnFailure | None = None
    ) -> None:
        self.__dict__.update(vars(translator))
        self.detector, self.on_failure = detector, on_failure
        if on_failure in ("next_best", "resample"):
            if self.device.type == "meta":
                raise InputError(
                    f"on_failure={on_failure} searches with the model, which an export for "
                    "CTranslate2 alone lacks; give its run"
                )
            _ = self._other

    def with_search(self, search: SearchConfig) -> Translator:
        """See ``Translator.with_search``; the result flags too."""
        return FlaggingTranslator(super().with_search(search), self.detector, self.on_failure)

    @cached_property
    def _other(self) -> Translator:
        search = self.search
        width = search.candidates if search.algorithm == "mbr" else search.beam_size
        changes: dict[str, Any] = {"nbest": max(width, search.nbest)}
        if self.on_failure == "resample":
            plain = {"algorithm": "sampling", "beam_size": 1, "nbest": SAMPLES, "epsilon": EPSILON}
            changes = {**NEUTRAL, **plain, "coverage_penalty": 0.0, "shortlist": None}
        elif changes["nbest"] == 1:
            raise InputError(
                "on_failure=next_best needs a search of several candidates; set decoding=beam, or "
                "on_failure=resample"
            )
        return super().with_search(replace(search, **changes))

    def translate(
        self,
        texts: Sequence[str],
        constraints: Sequence[Constraints | None] | None = None,
        **more: Any,
    ) -> list[Translation]:
        """See ``Translator.translate``; with attention or alignment nothing is replaced."""
        constraints = [None] * len(texts) if constraints is None else constraints
        found = super().translate(texts, constraints, **more)
        flagged = [self._flagged(*pair) for pair in zip(texts, found, strict=True)]
        views = more.get("attention") or more.get("alignment")
        if views or self.on_failure not in ("next_best", "resample"):
            return flagged
        must = [one is not None and bool(one.must or one.terms) for one in constraints]
        failed = [
            index
            for index, one in enumerate(flagged)
            if ACTING & {*(one.flags or ())} and not (must[index] and self.on_failure == "resample")
        ]
        replacements = self._other.translate(
            [texts[i] for i in failed], [constraints[i] for i in failed]
        )
        for index, other in zip(failed, replacements, strict=True):
            better = (self._flagged(texts[index], one) for one in self._by_candidate(other))
            good = (one for one in better if not ACTING & {*(one.flags or ())})
            if new := next(good, None):
                asked = constraints[index]
                flagged[index] = new.checked(asked and asked.on_source(texts[index]))
        return flagged

    def _flagged(self, source: str, found: Translation) -> Translation:
        flags = self.detector.flags(source, as_output(found))
        return replace(found, flags=flags)

    def _by_candidate(self, found: Translation) -> Iterator[Translation]:
        """The translation with each of its candidates as the best, followed by the others."""
        for index, best in enumerate(found.nbest):
            nbest = (best, *found.nbest[:index], *found.nbest[index + 1 :])[: self.search.nbest]
            yield replace(found, text=best.text, score=best.score, tokens=best.tokens, nbest=nbest)
