"""Search many segments: in batches of similar length, by the algorithm of the config.

Sources: Wu et al. 2016, "Google's Neural Machine Translation System", section 7, equation 14, for
the coverage penalty.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.common.errors import InputError, is_out_of_memory
from transformer.common.files import given_path
from transformer.data.batching.batch import Row, pad_source
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import batched_attention
from transformer.decoding.batching import bucket_batches
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.diverse_beam import diverse_search
from transformer.decoding.search.graphed_step import (
    StepGraphs,
    build_graphed_step,
    step_graphs,
)
from transformer.decoding.search.greedy import greedy_search
from transformer.decoding.search.model_step import Model, build_step, ensemble_members
from transformer.decoding.search.search import (
    BanningStep,
    Hypothesis,
    LogProbabilities,
    StepFunction,
)
from transformer.decoding.search.shortlist import Shortlist
from transformer.decoding.search.speech import PromptedStep, SilenceRecorder, TimedStep
from transformer.model.attention.masks import Source
from transformer.model.head_masks import HeadName
from transformer.model.transformer import Transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import BOS

if TYPE_CHECKING:
    from transformer.decoding.constraints.compile import CompiledConstraints, ConstraintCompiler

MIN_PARTS = 8
"""Minimal number of parts of long texts in a batch: each alone would take as long as all."""

LOWEST = torch.finfo(torch.float32).min
NO_TRANSLATION = Hypothesis((), LOWEST, LOWEST)
"""The result if the constraints leave no translation."""


@dataclass(eq=False)
class ModelSearcher:
    """The search of a model in evaluation mode; the fields are those of ``Translator``."""

    model: Model
    tokenizer: Tokenizer
    search: SearchConfig
    batch_tokens: int
    head: HeadName | None = None
    timestamps: bool = False
    _graphs: dict[torch.device, list[StepGraphs]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        if self.search.algorithm == "mbr":
            from transformer.decoding.mbr import utility_named

            utility_named(self.search.utility)

    def __call__(self, segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        """Return up to ``nbest`` hypotheses per segment, the best first; see `search_batch`."""
        nbest: list[list[Hypothesis]] = [[] for _ in segments]
        beam = self.search.width
        widths = [self._width(segment) for segment in segments]
        # The end of the sentence is one token more.
        tokens = [(len(s.subwords) + 1) * width for s, width in zip(segments, widths, strict=True)]
        parts = [n for n, segment in zip(tokens, segments, strict=True) if segment.is_part]
        budget = max(self.batch_tokens, MIN_PARTS * max(parts, default=0))
        # Segments with required phrases, whose beams are wider, have batches of their own.
        for has_phrases in (False, True):
            group = [index for index, width in enumerate(widths) if (width > beam) is has_phrases]
            for batch in bucket_batches([tokens[index] for index in group], budget):
                indices = [group[number] for number in batch]
                results = self._search_in_memory([segments[index] for index in indices])
                for index, hypotheses in zip(indices, results, strict=True):
                    nbest[index] = hypotheses
        return nbest

    def _width(self, segment: Segment) -> int:
        """Number of hypotheses per sentence; more if there are required phrases."""
        if segment.constraints is None or not segment.constraints.must:
            return self.search.width
        return self._compiler.width(segment.constraints.must, self.search.width)

    @cached_property
    def _compiler(self) -> "ConstraintCompiler":
        from transformer.decoding.constraints.compile import ConstraintCompiler

        return ConstraintCompiler(self.tokenizer)

    @cached_property
    def _shortlist(self) -> Shortlist | None:
        path = self.search.shortlist
        return None if path is None else Shortlist.load(given_path(path), self.tokenizer)

    def _step_graphs(self) -> list[StepGraphs]:
        """The graphs of the models where they are; empty if there are none."""
        if not self.search.cuda_graphs:
            return []
        device = next(self.model.parameters()).device
        if device not in self._graphs:
            self._graphs = {device: step_graphs(self.model, device)}
        return self._graphs[device]

    def _search_in_memory(self, segments: list[Segment]) -> list[list[Hypothesis]]:
        """Search, in halves if memory is too small: only a shortlist is of a batch."""
        return in_halves(
            self._search_batch,
            segments,
            lambda segment: (
                f"one sentence of {len(segment.subwords)} tokens; cut it in two, lower "
                "decoding.beam_size, nbest or candidates"
            ),
            self.free_memory,
        )

    def free_memory(self) -> None:
        """Free the memory of the graphs, between the searches of other threads."""
        for graphs in self._step_graphs():
            with graphs.lock:
                graphs.clear()

    def _search_batch(self, segments: list[Segment]) -> list[list[Hypothesis]]:
        sources = [segment.subwords for segment in segments]
        compiled = None
        silence = SilenceRecorder(self.tokenizer.no_speech)
        speech = self._speech(segments, silence)
        tagged = speech is None and any(segment.target_tags for segment in segments)
        if tagged or any(segment.constraints for segment in segments):
            compiled = self._compiler.compile(
                [segment.constraints for segment in segments],
                max_subwords(self.model) - (len(speech.prompts[0]) if speech else 0),
                next(self.model.parameters()).device,
                [segment.target_tags for segment in segments] if tagged else (),
            )
        # What constraints ask for may be any token.
        shortlist = self._shortlist.tokens(sources) if self._shortlist and not compiled else None
        graphs = self._step_graphs()
        with ExitStack() as alone:
            for member_graphs in graphs:
                alone.enter_context(member_graphs.lock)
            results = search_batch(
                self.model,
                sources,
                self.search,
                self.head,
                Conditions(compiled, self.tokenizer.never_written, shortlist, speech),
                graphs,
            )
        results = [hypotheses or [NO_TRANSLATION] for hypotheses in results]
        if speech is not None:
            silences: Sequence[float | None] = silence.probabilities() or [None] * len(segments)
            results = [
                [
                    replace(
                        hypothesis,
                        tokens=(*prompt, *hypothesis.tokens),
                        no_speech=silent,
                        prompt_length=len(prompt),
                    )
                    for hypothesis in hypotheses
                ]
                for prompt, silent, hypotheses in zip(
                    speech.prompts, silences, results, strict=True
                )
            ]
        if self.search.algorithm != "mbr":
            return results
        from transformer.decoding.mbr import minimum_bayes_risk

        return [
            minimum_bayes_risk(
                hypotheses, hypothesis_texts(hypotheses, self.tokenizer), self.search
            )
            for hypotheses in results
        ]

    def _speech(
        self, segments: Sequence[Segment], on_first_step: Callable[[LogProbabilities], object]
    ) -> "SpeechRules | None":
        """The rules of a model of speech (`SpeechTags`); None for other models."""
        tags = self.tokenizer.tags.speech
        if tags is None:
            return None
        return SpeechRules(
            [segment.target_tags for segment in segments],
            tags.never_first,
            self.tokenizer.times if self.timestamps else None,
            self.tokenizer.target_vocab_size - len(self.tokenizer.tags.spelled),
            on_first_step,
        )


@dataclass(frozen=True)
class SpeechRules:
    """What the texts of a model of speech may be, beside what no text has."""

    prompts: Sequence[tuple[int, ...]]
    """Given beginnings, of one length; they are no part of a text and of its score."""
    never_first: Sequence[int]
    times: range | None
    """Ids of the times that a text has; None for a text without times."""
    first_tag: int
    """Number of the subwords."""
    on_first_step: Callable[[LogProbabilities], object]
    """See `PromptedStep`."""

    def prompted(self, step: StepFunction, device: torch.device) -> StepFunction:
        """A step whose hypotheses follow the prompts."""
        never_first = torch.tensor(self.never_first, dtype=torch.long, device=device)
        # A model of English alone has an empty prompt with times.
        prompts = torch.tensor(self.prompts, dtype=torch.long, device=device)
        return PromptedStep(step, prompts, never_first, self.on_first_step)

    def timed(self, step: StepFunction) -> StepFunction:
        """A step that has times by their rules, or as it is."""
        if self.times is None:
            return step
        return TimedStep(step, self.times, self.first_tag)


@dataclass(frozen=True)
class Conditions:
    """What the translations of a batch must be."""

    constraints: "CompiledConstraints | None" = None
    banned: Sequence[int] = ()
    """Tokens that none has."""
    shortlist: Int[Tensor, " tokens"] | None = None
    """If there is one, no translation has any other token."""
    speech: SpeechRules | None = None


UNCONDITIONAL = Conditions()

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_halves(
    compute: Callable[[list[Item]], list[Result]],
    items: list[Item],
    describe: Callable[[Item], str],
    free_memory: Callable[[], None] | None,
) -> list[Result]:
    """Compute all items at once; if memory is too small, each half, and one item once more.

    Raises InputError if it is too small for an item, which ``describe`` names, with advice.
    """
    try:
        return compute(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # The traceback, and the memory that it held, is gone here.
    if free_memory is not None:
        free_memory()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if len(items) > 1:
        middle = (len(items) + 1) // 2
        halves = items[:middle], items[middle:]
        return [
            result for half in halves for result in in_halves(compute, half, describe, free_memory)
        ]
    try:
        return compute(items)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"the device runs out of memory with {describe(items[0])}, or take device=cpu"
        ) from error


def detect_languages(
    model: Model,
    sounds: Sequence[Row],
    tokenizer: Tokenizer,
    batch_tokens: int,
    free_memory: Callable[[], None] | None = None,
) -> list[str]:
    """Return the language of each sound: its tag is the most probable first token.

    Source: Radford et al. 2022, section 2.3. A sound is a window that the model reads.
    """
    languages = tokenizer.languages
    device = next(model.parameters()).device

    def detect(batch: list[Row]) -> list[str]:
        step = build_step(model, pad_source(batch).to(device), 1)
        # batch beam vocab -> batch language
        following = step(torch.full((len(batch), 1), BOS, device=device))[:, 0]
        best = following[:, languages.start : languages.stop].argmax(1)
        return [tokenizer.tags.targets[language] for language in best.tolist()]

    detected = [""] * len(sounds)
    for indices in bucket_batches([len(sound) + 1 for sound in sounds], batch_tokens):
        languages_of_batch = in_halves(
            detect,
            [sounds[index] for index in indices],
            lambda sound: f"one sound of {len(sound)} vectors; name its language (from=)",
            free_memory,
        )
        for index, language in zip(indices, languages_of_batch, strict=True):
            detected[index] = language
    return detected


def hypothesis_texts(hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer) -> list[str]:
    """Detokenize; bytes can spell a line end, which becomes a space."""
    texts = tokenizer.decode_target([hypothesis.tokens for hypothesis in hypotheses])
    return [text.replace("\n", " ") for text in texts]


Search = Callable[[StepFunction, Tensor, SearchConfig], list[list[Hypothesis]]]
SEARCHES: dict[str, Search] = {
    "beam": beam_search,
    "greedy": greedy_search,
    "diverse": diverse_search,
}
"""Searches that need only a step, limits and the config, by ``decoding.algorithm``."""


def search_batch(
    model: Model,
    segments: Sequence[Row],
    config: SearchConfig,
    head: HeadName | None = None,
    conditions: Conditions = UNCONDITIONAL,
    graphs: Sequence[StepGraphs] = (),
) -> list[list[Hypothesis]]:
    """Return up to ``nbest`` hypotheses per segment, the best first, in the segments' order.

    With ``mbr`` it returns all candidates, ranked by the search. The model is in evaluation mode.
    The coverage penalty reads ``head``, in the first model of an ensemble. A step is computed by
    the ``graphs`` of the models, if there are any.
    """
    constraints = conditions.constraints
    if constraints is not None and constraints.must is not None and config.algorithm != "beam":
        raise InputError(
            f"decoding.algorithm={config.algorithm} cannot look for phrases that must occur; "
            "set decoding=beam"
        )
    if config.coverage_penalty and conditions.speech is not None:
        raise InputError(
            "decoding.coverage_penalty is of text: a model of speech may stay silent; set it to 0"
        )
    config = config.candidate_search
    if not config.coverage_penalty:
        return _search(model, segments, config, conditions, graphs)
    # The penalty ranks the whole final beam.
    whole = replace(config, nbest=config.width, coverage_penalty=0.0)
    beams = _search(model, segments, whole, conditions, graphs)
    first = ensemble_members(model)[0]
    ranked = rank_by_coverage(first, segments, beams, config.coverage_penalty, head)
    return [hypotheses[: config.nbest] for hypotheses in ranked]


def _search(
    model: Model,
    segments: Sequence[Row],
    config: SearchConfig,
    conditions: Conditions,
    graphs: Sequence[StepGraphs],
) -> list[list[Hypothesis]]:
    constraints = conditions.constraints
    device = next(model.parameters()).device
    max_length = max_subwords(model)
    if conditions.speech is not None:
        max_length = max(1, max_length - len(conditions.speech.prompts[0]))
    limits = torch.tensor([min(max_length, config.limit(len(segment))) for segment in segments])
    limits = limits.to(device)
    width = config.width
    if constraints is not None:
        limits = constraints.limits(limits, max_length)
        if constraints.must is not None:
            width = int(constraints.must.widths(width).max())
    step = _step(model, pad_source(segments).to(device), width, conditions, graphs)
    if constraints is not None:
        step = constraints.step(step, limits, width)
        if constraints.must is not None:
            from transformer.decoding.constraints.dynamic_beam_allocation import allocated_search

            return allocated_search(step, limits, config, constraints.must)
    if config.algorithm == "sampling":
        from transformer.decoding.search.sampling import derive_seed, sample_search

        seeds = [derive_seed(segment, config.seed) for segment in segments]
        return sample_search(step, limits, config, seeds)
    results = SEARCHES[config.algorithm](step, limits, config)
    if conditions.shortlist is None:
        return results
    ids = conditions.shortlist.tolist()
    return [
        [replace(h, tokens=tuple(ids[token] for token in h.tokens)) for h in hypotheses]
        for hypotheses in results
    ]


def _step(
    model: Model,
    source: Source,
    width: int,
    conditions: Conditions,
    graphs: Sequence[StepGraphs],
) -> StepFunction:
    """The step of a model without the tokens that no translation has."""
    device = source.device
    banned = conditions.banned
    shortlist = conditions.shortlist
    speech = conditions.speech
    if speech is not None:
        banned = [token for token in banned if token not in (speech.times or ())]
    banned_tokens = torch.tensor(banned, dtype=torch.long)
    if shortlist is not None:
        banned_tokens = torch.isin(shortlist, banned_tokens).nonzero()[:, 0]
        shortlist = shortlist.to(device)
    if shortlist is None and graphs and all(member_graphs.works for member_graphs in graphs):
        step = build_graphed_step(model, source, width, graphs)
    else:
        step = build_step(model, source, width, shortlist)
    if speech is not None:
        step = speech.prompted(step, device)
    if len(banned_tokens):
        step = BanningStep(step, banned_tokens.to(device))
    return step if speech is None else speech.timed(step)


def max_subwords(model: Model) -> int:
    """Maximal subwords of a translation; the beginning takes one position."""
    return max(1, model.config.max_length - 1)


def max_source(model: Model) -> int:
    """Maximal subwords of a source, whose end takes one position; or vectors of a file."""
    members = ensemble_members(model)
    ends = 1 if model.config.front_end is None else int(model.config.class_token)
    return max(1, min(member.config.source_positions for member in members) - ends)


def rank_by_coverage(
    model: Transformer,
    sources: Sequence[Row],
    beams: Sequence[list[Hypothesis]],
    beta: float,
    head: HeadName | None,
) -> list[list[Hypothesis]]:
    """Add the penalty of weight ``beta`` to every score of each sentence, and rank again.

    The attention of the final hypotheses is computed again, so that the search keeps its fast
    kernel.
    """
    pairs = [(s, h.tokens) for s, beam in zip(sources, beams, strict=True) for h in beam]
    weights = iter(batched_attention(model, pairs, head))

    def with_coverage(hypothesis: Hypothesis) -> Hypothesis:
        penalty = coverage_penalty(next(weights), beta)
        return replace(hypothesis, score=hypothesis.score + penalty, coverage_penalty=penalty)

    scored = [[with_coverage(hypothesis) for hypothesis in beam] for beam in beams]
    return [sorted(beam, key=lambda hypothesis: -hypothesis.score) for beam in scored]


def coverage_penalty(attention: Float[Tensor, "target source"], beta: float) -> float:
    """``beta * sum over source subwords of log(min(total attention to it, 1))``."""
    covered = attention.sum(0).clamp(min=torch.finfo(torch.float32).tiny, max=1.0)
    return beta * math.fsum(covered.log().tolist())
