"""An engine of translators that runs CTranslate2.

The engine searches with our beam size and ``stopping=full``; our length penalty ranks its
hypotheses. Its probabilities exclude the padding and beginning symbols.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transformer.common.errors import InputError, raise_objections, readable
from transformer.common.files import given_path
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batched_search import max_subwords
from transformer.decoding.fingerprint import check_fingerprint
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.search.shortlist import ENGINE_FILE
from transformer.decoding.translator import Searcher, Translator, torch_engine
from transformer.interchange.ctranslate2 import vocabulary_map
from transformer.settings.decoding import SearchConfig

log = logging.getLogger(__name__)

SEARCHABLE: dict[str, tuple[Any, ...]] = {
    "algorithm": ("beam", "greedy"),
    "coverage_penalty": (0,),
    "eos_threshold": (0,),
    # The engine renormalizes over the remaining tokens; our search does not.
    "min_length": (0,),
    "no_repeat_ngram": (0,),
}
"""The values of these settings that CTranslate2 can do; it can do all values of the others."""


def check_search(search: SearchConfig, tokenizer: Tokenizer) -> None:
    """Raise InputError for settings that CTranslate2 does not have."""
    if search.shortlist and tokenizer.tags.sentences:
        raise InputError(
            "decoding.shortlist: the vmap.txt of CTranslate2 cannot name the separator of a "
            "document; set decoding.shortlist=null, or use engine=torch"
        )
    raise_objections(
        f"decoding.{name}={value} cannot be done alike by engine=ctranslate2; set "
        f"decoding.{name}={values[0]}, or use engine=torch"
        for name, values in SEARCHABLE.items()
        if (value := getattr(search, name)) not in values
    )


class EngineBeams:
    """The hypotheses of the engine for source subwords, ranked by our length penalty."""

    def __init__(self, translator: Translator, folder: Path, device: torch.device) -> None:
        import ctranslate2

        self.tokenizer, self.search = translator.tokenizer, translator.search
        self.batch_tokens = translator.batch_tokens
        self.max_subwords = max_subwords(translator.model)
        subwords = self.tokenizer.subwords(range(self.tokenizer.target_vocab_size))
        self.ids = {subword: number for number, subword in enumerate(subwords)}
        where = {"device": device.type, "device_index": device.index or 0}
        threads = torch.get_num_threads()
        with readable(folder):
            self.engine = ctranslate2.Translator(str(folder), intra_threads=threads, **where)

    def limit(self, segment: Sequence[int]) -> int:
        """Maximum length of its translation; the engine has one limit for all segments."""
        return min(self.max_subwords, self.search.limit(len(segment)))

    def __call__(self, segments: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Search them all; hypotheses may be longer than the limit of their segment."""
        width = self.search.beam_size
        # Without a penalty the engine would stop a beam search earlier than ours. In greedy search
        # it divides only some scores by the penalty.
        power = (self.search.length_penalty or 1e-6) if width > 1 else 0.0
        found = self.engine.translate_batch(
            [self.tokenizer.source_subwords(segment) for segment in segments],
            beam_size=width,
            num_hypotheses=width,
            length_penalty=power,
            min_decoding_length=0,
            # The end symbol counts as one more.
            max_decoding_length=max(map(self.limit, segments), default=0) + 1,
            max_input_length=0,
            max_batch_size=max(1, self.batch_tokens // width),
            batch_type="tokens",
            return_scores=True,
            use_vmap=self.search.shortlist is not None,
        )
        return [self._ranked(result.hypotheses, result.scores, power) for result in found]

    def _ranked(
        self, hypotheses: list[list[str]], scores: list[float], power: float
    ) -> list[Hypothesis]:
        found = []
        for subwords, score in zip(hypotheses, scores, strict=True):
            length = len(subwords) + 1
            total = score * length**power
            tokens = tuple(self.ids[subword] for subword in subwords)
            found.append(Hypothesis(tokens, total / self.search.penalty(length), total))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)


@dataclass(frozen=True)
class CTranslate2Engine:
    """The engine with an export of the model; a device of None is that of the model."""

    folder: Path
    device: torch.device | None = None

    def __call__(self, translator: Translator) -> Searcher:
        """Load the export; raises InputError for another model or a search that it cannot do."""
        return CTranslate2Searcher(translator, self.folder, self.device or translator.device)


class CTranslate2Searcher:
    """Searches with the engine, and with our search for constraints and too long hypotheses.

    An export alone (``read_ctranslate2``) has no model for our search: it cuts hypotheses at their
    limit, and refuses constraints.
    """

    def __init__(self, translator: Translator, folder: Path, device: torch.device) -> None:
        check_search(translator.search, translator.tokenizer)
        if path := translator.search.shortlist:
            file, tokenizer = folder / ENGINE_FILE, translator.tokenizer
            known = file.read_text(encoding="utf-8") if file.is_file() else ""
            # An export without its run has no other.
            own = known if path == "auto" else vocabulary_map(given_path(path), tokenizer)
            if not known or known != own:
                raise InputError(
                    f"{file} is missing, or of another shortlist; export again with "
                    "RUN/shortlist.npz, or set decoding.shortlist=null"
                )
        if translator.search.stopping == "exact" and translator.search.beam_size > 1:
            log.warning("engine=ctranslate2 stops with a full beam, as decoding.stopping=full does")
        self.has_model = translator.device.type != "meta"
        if self.has_model:
            check_fingerprint(translator.model, translator.tokenizer, folder)
        self.own_search, self.nbest = torch_engine(translator), translator.search.nbest
        self.beams = EngineBeams(translator, folder, device)

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        """Search them all; raises InputError for constraints where there is only the export."""
        limits = [self.beams.limit(segment.subwords) for segment in segments]
        found = self.beams([segment.subwords for segment in segments])
        if not self.has_model:
            if any(segment.constraints for segment in segments):
                raise InputError("an export alone has no prefix, must or never; give its run")
            found = [
                [replace(hypothesis, tokens=hypothesis.tokens[:limit]) for hypothesis in beam]
                for beam, limit in zip(found, limits, strict=True)
            ]
        # The engine has one limit for all segments, and no constraints.
        again = [
            index
            for index, beam in enumerate(found)
            if segments[index].constraints or any(len(h.tokens) > limits[index] for h in beam)
        ]
        beams = self.own_search([segments[index] for index in again])
        for index, beam in zip(again, beams, strict=True):
            found[index] = beam
        return [hypotheses[: self.nbest] for hypotheses in found]
