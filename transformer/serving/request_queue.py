"""Translates texts of many clients at once: sentences, the queue and the cache."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Executor
from functools import partial

import numpy as np

from transformer.common.errors import InputError
from transformer.data.features.read_source import ReadSource
from transformer.serving.batch_translation import (
    Options,
    Sentence,
    SentenceTranslation,
    TextTranslation,
    translate_batch,
)
from transformer.serving.formats.placeholders import TranslateBatch, translate_with_placeholders
from transformer.serving.languages import Detected, Detector, Direction, Directions
from transformer.serving.micro_batching import Job, Metrics, MicroBatcher
from transformer.serving.sentences import Part, Splitting, plain_blanks, split_sentences
from transformer.settings.commands import Limits

_LONGEST_REMEMBERED = 1000
"""Characters of a sentence in the cache."""

_SAMPLE = "A b."
"""Translated before the first request, which would be slow otherwise."""


def _sample(direction: Direction) -> str:
    """What warms a direction up: a text or, of files, some vectors."""
    if direction.kind == "text":
        return _SAMPLE
    vectors = direction.translator.tokenizer.vector_source
    length = vectors.extractor.window or 32
    return ReadSource("sample", np.zeros((length, len(vectors)), dtype=np.float32))


_Futures = dict[Sentence, "asyncio.Future[SentenceTranslation]"]
_Split = list[list[tuple[Part, Sentence]]]


class RequestQueue:
    """Translates the texts of all clients.

    Args:
        directions: The models.
        limits: Of requests.
        batch_tokens: Source tokens of a batch, padding included.
        cache: The number of remembered sentences.
        thread: The thread that loaded the models.
        translate: Translates the sentences of a batch.
    """

    def __init__(
        self,
        directions: Directions,
        limits: Limits,
        *,
        batch_tokens: int,
        cache: int,
        thread: Executor,
        translate: TranslateBatch = translate_batch,
    ) -> None:
        self.directions = directions
        self.limits = limits
        self.metrics = Metrics()
        self.detector = Detector(directions.sources)
        self._cached: OrderedDict[tuple[Options, Sentence], SentenceTranslation] = OrderedDict()
        self._cache = cache
        self.batcher = MicroBatcher(
            partial(translate_with_placeholders, translate=translate),
            batch_tokens=batch_tokens,
            max_waiting=limits.waiting,
            metrics=self.metrics,
            thread=thread,
        )
        warm_up = [Job(Options(each), Sentence(_sample(each)), 1) for each in directions.all]
        try:
            for job in warm_up:
                self.batcher.submit([job])
                job.result.result()
        except BaseException:
            # Otherwise the process waits for the thread.
            self.batcher.close(0)
            raise

    async def translate(self, texts: Sequence[str], options: Options) -> list[TextTranslation]:
        """Translate texts, each sentence by itself, or each line (``Direction.whole_lines``).

        Raises QueueFull, TimeoutError after ``limits.seconds``, and InputError for what the model
        cannot do or a request that is too large.
        """
        async with asyncio.timeout(self.limits.seconds):
            split, futures = await self._submit(texts, options)
            try:
                await asyncio.gather(*futures.values())
            finally:
                _cancel(futures)
        return [
            TextTranslation(tuple((part, futures[sentence].result()) for part, sentence in parts))
            for parts in split
        ]

    async def translate_read(
        self, sources: Sequence[ReadSource], options: Options
    ) -> list[SentenceTranslation]:
        """Translate files that have been read, each in one batch; raises as `translate` does."""
        if len(sources) > self.limits.waiting:
            raise InputError(
                f"one request may have {self.limits.waiting} parts; send it in several"
            )
        jobs = [Job(options, Sentence(source), len(source.vectors)) for source in sources]
        futures = [asyncio.wrap_future(job.result) for job in jobs]
        try:
            async with asyncio.timeout(self.limits.seconds):
                self.batcher.submit(jobs)
                translations = await asyncio.gather(*futures)
        finally:
            for future in futures:
                future.cancel()
        self.metrics.source_tokens.inc(sum(one.source_tokens for one in translations))
        self.metrics.target_tokens.inc(sum(one.target_tokens for one in translations))
        return translations

    async def stream(self, text: str, options: Options) -> AsyncGenerator[TextTranslation]:
        """Yield the sentences of ``translate``, in their order, as they are finished."""
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        async with asyncio.timeout_at(deadline):
            [parts], futures = await self._submit([text], options)
        try:
            before = None
            for part, sentence in parts:
                async with asyncio.timeout_at(deadline):
                    translation = await futures[sentence]
                yield TextTranslation(((part, translation),), before)
                if translation.text:
                    before = part, translation
        finally:
            _cancel(futures)

    async def _submit(self, texts: Sequence[str], options: Options) -> tuple[_Split, _Futures]:
        # In a thread: a long text must not block other clients.
        split, jobs = await asyncio.to_thread(self._prepare, texts, options)
        futures: _Futures = {}
        missing = []
        for sentence, job in jobs.items():
            futures[sentence] = asyncio.wrap_future(job.result)
            known = self._remembered(sentence, options)
            if known:
                job.result.set_result(known)
            else:
                missing.append(job)
                # Also remembered if another sentence of the request fails.
                futures[sentence].add_done_callback(partial(self._remember, sentence, options))
        if missing:
            self.batcher.submit(missing)
        return split, futures

    def _prepare(
        self, texts: Sequence[str], options: Options
    ) -> tuple[_Split, dict[Sentence, Job]]:
        direction = options.direction
        direction.require_text()
        lines = direction.whole_lines
        splitting: Splitting = "lines" if lines else options.splitting
        split: _Split = []
        for text in texts:
            split.append([])
            for part in split_sentences(text, direction.source, splitting):
                plain = part.sentence if lines else plain_blanks(part.sentence)
                constraints = options.constrain(plain) if options.constrain else None
                split[-1].append((part, Sentence(plain, constraints)))
        sentences = [sentence for parts in split for _, sentence in parts]
        if sum(bool(sentence.text) for sentence in sentences) > self.limits.waiting:
            raise InputError(
                f"one request may have {self.limits.waiting} sentences; send fewer at a time"
            )
        jobs = {
            sentence: Job(options, sentence, direction.length(sentence.text))
            for sentence in dict.fromkeys(sentences)
        }
        longest = max((job.length for job in jobs.values()), default=0)
        # Their memory grows with the square of the length.
        if options.links or options.confidence or options.attention:
            limit = direction.translator.max_subwords
            if longest > limit:
                raise InputError(
                    f"alignment, confidence and attention take sentences of up to {limit} tokens, "
                    f"not {longest}"
                )
        return split, jobs

    def detect_source(self, texts: Sequence[str], target: str) -> Detected:
        """The likeliest language of texts with this target; its confidence is 0 without letters."""
        sources = [
            direction.source for direction in self.directions.all if direction.target == target
        ]
        ranked = self.detector.detect("\n".join(texts))
        if not ranked:
            return Detected((sources or self.directions.sources)[0], 0.0)
        return next((detected for detected in ranked if detected.language in sources), ranked[0])

    def _remembered(self, sentence: Sentence, options: Options) -> SentenceTranslation | None:
        is_copied = not options.direction.whole_lines or not sentence.text
        if is_copied and not any(map(str.isalpha, sentence.text)):
            return SentenceTranslation(sentence.text, sentence.text)
        known = self._cached.get((options, sentence))
        if known is not None:
            self._cached.move_to_end((options, sentence))
            self.metrics.cache_hits.inc()
        return known

    def _remember(
        self, sentence: Sentence, options: Options, done: "asyncio.Future[SentenceTranslation]"
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        translation = done.result()
        self.metrics.source_tokens.inc(translation.source_tokens)
        self.metrics.target_tokens.inc(translation.target_tokens)
        for flag in translation.flags:
            self.metrics.failures.labels(flag).inc()
        # Attention grows with the square of the length, and few ask for it.
        small = len(sentence.text) <= _LONGEST_REMEMBERED and not options.attention
        if self._cache and small:
            self._cached[options, sentence] = translation
            if len(self._cached) > self._cache:
                self._cached.popitem(last=False)


def _cancel(futures: _Futures) -> None:
    for future in futures.values():
        future.cancel()
