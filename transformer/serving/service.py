"""Texts in, translations out, for many clients at once: sentences, the queue and the cache.

It knows neither HTTP nor the form of an answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from transformer.decoding.constraints.request import Constraints
from transformer.serving.config import Limits
from transformer.serving.languages.detection import Detected, Detector
from transformer.serving.languages.directions import Directions
from transformer.serving.languages.sentences import Splitting, split_sentences
from transformer.serving.metrics import Metrics
from transformer.serving.micro_batching import Job, MicroBatcher
from transformer.serving.translations import (
    Options,
    Sentence,
    SentenceTranslation,
    TextTranslation,
    translate_batch,
)

_SAMPLE = "A b."
"""What the models translate before the first request, which would be slow otherwise."""


class TranslationService:
    """Translates the texts of all clients with the models of some directions.

    Args:
        directions: The languages and their models.
        limits: How much may wait, and how long.
        batch_tokens: Maximal padded source tokens of a batch.
        cache: Sentences whose translation is remembered.
    """

    def __init__(
        self, directions: Directions, limits: Limits, *, batch_tokens: int, cache: int
    ) -> None:
        self.directions, self.limits = directions, limits
        self.metrics = Metrics()
        self.detector = Detector(directions.sources)
        self._cached: OrderedDict[tuple[Options, Sentence], SentenceTranslation] = OrderedDict()
        self._cache = cache
        self._batcher = MicroBatcher(
            translate_batch,
            batch_tokens=batch_tokens,
            max_waiting=limits.waiting,
            metrics=self.metrics,
        )
        for direction in directions.all:
            translate_batch(Options(direction), [Sentence(_SAMPLE)])

    async def translate(
        self,
        texts: Sequence[str],
        options: Options,
        *,
        splitting: Splitting = "sentences",
        constrain: Callable[[str], Constraints | None] | None = None,
    ) -> list[TextTranslation]:
        """Translate texts, each sentence by itself.

        Args:
            texts: Any strings; their blanks and line ends are kept, and a sentence without a letter
                comes back as it is.
            options: What is asked of each sentence.
            splitting: Where texts are cut into sentences.
            constrain: The constraints of the translation of a sentence.

        Raises:
            QueueFull: Too many sentences wait already.
            TimeoutError: ``limits.seconds`` are over; sentences that still wait are dropped.
            InputError: The model cannot do what is asked.
        """
        split = [split_sentences(text, options.direction.source, splitting) for text in texts]
        sentences = [
            Sentence(part.sentence, constrain(part.sentence) if constrain else None)
            for parts in split
            for part in parts
        ]
        found = iter(await self._sentences(sentences, options))
        return [TextTranslation(tuple((part, next(found)) for part in parts)) for parts in split]

    def detect_source(self, texts: Sequence[str], target: str) -> Detected:
        """The likeliest language of texts among those that are translated into the target.

        Its confidence is 0 if the texts have no letter.
        """
        sources = [one.source for one in self.directions.all if one.target == target]
        found = self.detector.detect("\n".join(texts))
        for one in found:
            if one.language in sources:
                return one
        return found[0] if found else Detected((sources or self.directions.sources)[0], 0.0)

    async def _sentences(
        self, sentences: Sequence[Sentence], options: Options
    ) -> list[SentenceTranslation]:
        """Translate sentences: from the cache, or by a job each."""
        found: dict[Sentence, SentenceTranslation] = {}
        jobs: dict[Sentence, Job] = {}
        for sentence in sentences:
            if sentence in found or sentence in jobs:
                continue
            known = self._remembered(sentence, options)
            if known is not None:
                found[sentence] = known
            else:
                jobs[sentence] = Job(options, sentence, options.direction.length(sentence.text))
        if jobs:
            self._batcher.submit(list(jobs.values()))
            futures = [asyncio.wrap_future(job.result) for job in jobs.values()]
            try:
                async with asyncio.timeout(self.limits.seconds):
                    done = await asyncio.gather(*futures)
            finally:
                for future in futures:
                    future.cancel()
            for sentence, translation in zip(jobs, done, strict=True):
                self._remember(sentence, options, translation)
                found[sentence] = translation
        return [found[sentence] for sentence in sentences]

    def _remembered(self, sentence: Sentence, options: Options) -> SentenceTranslation | None:
        if not any(map(str.isalpha, sentence.text)):
            return SentenceTranslation(sentence.text, sentence.text)
        known = self._cached.get((options, sentence))
        if known is not None:
            self._cached.move_to_end((options, sentence))
            self.metrics.cache_hits.inc()
        return known

    def _remember(
        self, sentence: Sentence, options: Options, translation: SentenceTranslation
    ) -> None:
        self.metrics.source_tokens.inc(translation.source_tokens)
        self.metrics.target_tokens.inc(translation.target_tokens)
        if self._cache:
            self._cached[options, sentence] = translation
            if len(self._cached) > self._cache:
                self._cached.popitem(last=False)

    def close(self) -> None:
        """Translate what waits, and end the thread of the models."""
        self._batcher.close()
