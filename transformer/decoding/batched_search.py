"""Search many segments: in batches of similar length, by whatever the config asks for.

It knows pieces, and text only where candidates are compared by it (minimum Bayes risk).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch

from transformer.common.errors import InputError, is_out_of_memory
from transformer.data.batching.batch import pad_source
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.compile import CompiledConstraints, ConstraintCompiler
from transformer.decoding.constraints.dynamic_beam_allocation import allocated_search
from transformer.decoding.length_bucketing import batches_apart
from transformer.decoding.long_inputs import Segment
from transformer.decoding.mbr.search import least_risk
from transformer.decoding.mbr.utility import utility_named
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.config import SearchConfig
from transformer.decoding.search.coverage_penalty import ranked_by_coverage
from transformer.decoding.search.diverse_beam import diverse_search
from transformer.decoding.search.ensemble import Model, build_step, leader
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.interface import Hypothesis, StepWithout
from transformer.decoding.search.sampling import sample_search
from transformer.model.heads import HeadName

PARTS_AT_ONCE = 8
"""Segments of long texts that make a batch, even where one fills it: alone each takes as long."""

LOWEST = torch.finfo(torch.float32).min
NOTHING = Hypothesis((), LOWEST, LOWEST)
"""Where what was asked leaves no translation at all."""


class Searcher(Protocol):
    """What finds translations: a model's search here, or another engine."""

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        """Return up to ``nbest`` hypotheses a segment, the best first, in their order."""
        ...


class ModelSearcher:
    """The search of a model or an ensemble, which is in evaluation mode when it is called."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        search: SearchConfig,
        batch_tokens: int,
        head: HeadName | None = None,
    ) -> None:
        """Take the model as it is at each call.

        Args:
            model: Or an ensemble.
            tokenizer: The one the model was trained with.
            search: How to search.
            batch_tokens: The most padded source tokens of a batch, counted once a hypothesis. A
                longer segment makes a batch alone.
            head: Where the coverage penalty looks, as in ``aligning_attention``.

        Raises:
            InputError: No token makes a batch, or there is no such utility.
        """
        if batch_tokens < 1:
            raise InputError(f"batch_tokens={batch_tokens} must be at least 1")
        if search.algorithm == "mbr":
            utility_named(search.utility)
        self.model = model
        self.tokenizer = tokenizer
        self.compiler = ConstraintCompiler(tokenizer)
        self.search = search
        self.batch_tokens = batch_tokens
        self.head = head

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        """Search them all.

        Raises:
            NotANumber: The model gave NaN.
            InputError: Phrases must occur, and the search is not beam search; or memory does not
                suffice for one segment.
        """
        found: list[list[Hypothesis]] = [[] for _ in segments]
        beam = self.search.width
        # Where phrases must occur, the beam is wider.
        widths = [self.compiler.width(segment.constraints, beam) for segment in segments]
        # The end of the sentence is one token more.
        tokens = [(len(s.subwords) + 1) * width for s, width in zip(segments, widths, strict=True)]
        parts = [n for n, segment in zip(tokens, segments, strict=True) if segment.is_part]
        budget = max(self.batch_tokens, PARTS_AT_ONCE * max(parts, default=0))
        for indices in batches_apart(tokens, [width > beam for width in widths], budget):
            results = self._search_what_fits([segments[index] for index in indices])
            for index, result in zip(indices, results, strict=True):
                found[index] = result
        return found

    def _search_what_fits(self, segments: list[Segment]) -> list[list[Hypothesis]]:
        """Search in halves where memory does not suffice: no result depends on its batch."""
        try:
            return self._search_batch(segments)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(segments) == 1:
                raise InputError(
                    f"the device runs out of memory with one sentence of "
                    f"{len(segments[0].subwords)} "
                    f"tokens; {self._ways_to_need_less()}"
                ) from error
        # The traceback, and what it held in memory, is gone here.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        middle = (len(segments) + 1) // 2
        halves = segments[:middle], segments[middle:]
        return [found for half in halves for found in self._search_what_fits(half)]

    def _ways_to_need_less(self) -> str:
        ways = []
        if self.search.width > 1:
            ways.append(f"set decoding.{self.search.width_key} lower")
        if next(self.model.parameters()).device.type != "cpu":
            ways.append("take device=cpu")
        return ", or ".join(ways) or "cut it in two"

    def _search_batch(self, segments: list[Segment]) -> list[list[Hypothesis]]:
        subwords = [segment.subwords for segment in segments]
        asked = [segment.constraints for segment in segments]
        device = next(self.model.parameters()).device
        compiled = self.compiler.compile(asked, max_subwords(self.model), device)
        never = self.tokenizer.never_written
        found = search_batch(self.model, subwords, self.search, self.head, compiled, never)
        found = [hypotheses or [NOTHING] for hypotheses in found]
        if self.search.algorithm != "mbr":
            return found
        return [
            least_risk(one, hypothesis_texts(one, self.tokenizer), self.search) for one in found
        ]


def hypothesis_texts(hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer) -> list[str]:
    """What they spell, without line ends: bytes can spell one, and would shift a file's lines."""
    texts = tokenizer.decode_target([hypothesis.tokens for hypothesis in hypotheses])
    return [text.replace("\n", " ") for text in texts]


SEARCHES = {"beam": beam_search, "greedy": greedy_search, "diverse": diverse_search}


def search_batch(
    model: Model,
    segments: Sequence[list[int]],
    config: SearchConfig,
    head: HeadName | None,
    constraints: CompiledConstraints | None = None,
    never: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses a segment, the best first, in the order of the segments.

    Of ``mbr`` all candidates, as the search that found them ranks them: their texts are compared
    later.

    Args:
        model: Or an ensemble; in evaluation mode.
        segments: Source pieces.
        config: How to search.
        head: Where the coverage penalty looks (of an ensemble, in the first), as in
            ``aligning_attention``.
        constraints: What the translations are asked for.
        never: Tokens that no translation has.

    Raises:
        NotANumber: The model gave NaN.
        InputError: Phrases must occur, and the search is not beam search.
    """
    if constraints is not None and constraints.must is not None and config.algorithm != "beam":
        raise InputError(
            f"decoding.algorithm={config.algorithm} cannot look for phrases that must occur; "
            "set decoding=beam"
        )
    config = config.of_candidates
    if not config.coverage_penalty:
        return _search(model, segments, config, constraints, never)
    # All that the beam ends with compete for the places of the n-best list.
    every = replace(config, nbest=config.width, coverage_penalty=0.0)
    found = _search(model, segments, every, constraints, never)
    ranked = ranked_by_coverage(leader(model), segments, found, config.coverage_penalty, head)
    return [hypotheses[: config.nbest] for hypotheses in ranked]


def _search(
    model: Model,
    segments: Sequence[list[int]],
    config: SearchConfig,
    constraints: CompiledConstraints | None,
    never: Sequence[int],
) -> list[list[Hypothesis]]:
    device = next(model.parameters()).device
    most = max_subwords(model)
    limits = torch.tensor([min(most, config.limit(len(segment))) for segment in segments])
    limits, width = limits.to(device), config.width
    if constraints is not None:
        limits, width = constraints.limits(limits, most), constraints.width(width)
    step = build_step(model, pad_source(segments).to(device), width)
    if never:
        step = StepWithout(step, torch.tensor(never, device=device))
    if constraints is not None:
        step = constraints.step(step, limits, width)
        if constraints.must is not None:
            return allocated_search(
                step, limits, config, constraints.must, constraints.continues_word
            )
    if config.algorithm == "sampling":
        seeds = [derive_seed(segment, config.seed) for segment in segments]
        return sample_search(step, limits, config, seeds)
    return SEARCHES[config.algorithm](step, limits, config)


def max_subwords(model: Model) -> int:
    """Pieces that a translation may have at most; the beginning takes one position."""
    return max(1, model.config.max_length - 1)


def derive_seed(subwords: Sequence[int], seed: int) -> int:
    """A seed of the text's own: neither its batch nor its place in the input changes it."""
    digest = hashlib.sha256(repr((seed, list(subwords))).encode()).digest()
    return int.from_bytes(digest[:7], "big")
