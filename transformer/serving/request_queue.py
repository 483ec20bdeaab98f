"""Translates texts of many clients at once: sentences, the queue and the cache."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Executor
from functools import partial

from transformer.common.errors import InputError
from transformer.serving.batch_translation import (
    Options,
    Sentence,
    SentenceTranslation,
    TextTranslation,
)
from transformer.serving.formats.placeholders import translate_with_placeholders
from transformer.serving.languages import Detected, Detector, Directions
from transformer.serving.metrics import Metrics
from transformer.serving.micro_batching import Job, MicroBatcher
from transformer.serving.sentences import Part, Splitting, plain_blanks, split_sentences
from transformer.settings.commands import Limits

_LONGEST_REMEMBERED = 1000
"""Characters of a sentence in the cache."""

_SAMPLE = "A b."
"""Translated before the first request, which would be slow otherwise."""

_Futures = dict[Sentence, "asyncio.Future[SentenceTranslation]"]
_Split = list[list[tuple[Part, Sentence]]]


class RequestQueue:
    """Translates the texts of all clients; ``cache`` is the number of remembered sentences."""

    def __init__(
        self,
        directions: Directions,
        limits: Limits,
        *,
        batch_tokens: int,
        cache: int,
        thread: Executor,
    ) -> None:
        self.directions, self.limits = directions, limits
        self.metrics = Metrics()
        self.detector = Detector(directions.sources)
        self._cached: OrderedDict[tuple[Options, Sentence], SentenceTranslation] = OrderedDict()
        self._cache = cache
        self.batcher = MicroBatcher(
            translate_with_placeholders,
            batch_tokens=batch_tokens,
            max_waiting=limits.waiting,
            metrics=self.metrics,
            thread=thread,
        )
        warm_up = [Job(Options(direction), Sentence(_SAMPLE), 1) for direction in directions.all]
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
                _drop(futures)
        return [
            TextTranslation(tuple((part, futures[sentence].result()) for part, sentence in parts))
            for parts in split
        ]

    async def stream(self, text: str, options: Options) -> AsyncGenerator[TextTranslation]:
        """Yield the sentences of ``translate``, in their order, as they are finished."""
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        async with asyncio.timeout_at(deadline):
            [parts], futures = await self._submit([text], options)
        try:
            for part, sentence in parts:
                async with asyncio.timeout_at(deadline):
                    found = await futures[sentence]
                yield TextTranslation(((part, found),))
        finally:
            _drop(futures)

    async def _submit(self, texts: Sequence[str], options: Options) -> tuple[_Split, _Futures]:
        # In a thread: a long text must not block other clients.
        split, jobs = await asyncio.to_thread(self._prepare, texts, options)
        futures: _Futures = {}
        missing = []
        for sentence, job in jobs.items():
            futures[sentence] = asyncio.wrap_future(job.result)
            if known := self._remembered(sentence, options):
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
        direction, constrain = options.direction, options.constrain
        lines = direction.whole_lines
        splitting: Splitting = "lines" if lines else options.splitting
        split = []
        for text in texts:
            parts = split_sentences(text, direction.source, splitting)
            plain = [p.sentence if lines else plain_blanks(p.sentence) for p in parts]
            sentences = [Sentence(one, constrain and constrain(one)) for one in plain]
            split.append(list(zip(parts, sentences, strict=True)))
        found = [sentence for parts in split for _, sentence in parts]
        if sum(bool(one.text) for one in found) > self.limits.waiting:
            raise InputError(
                f"one request may have {self.limits.waiting} sentences; send fewer at a time"
            )
        distinct = dict.fromkeys(found)
        jobs = {one: Job(options, one, direction.length(one.text)) for one in distinct}
        longest = max((job.length for job in jobs.values()), default=0)
        # Their memory grows with the square of the length.
        squared = options.links or options.confidence or options.attention
        if squared and longest > (limit := direction.translator.max_subwords):
            raise InputError(
                f"alignment, confidence and attention take sentences of up to {limit} tokens, not "
                f"{longest}"
            )
        return split, jobs

    def detect_source(self, texts: Sequence[str], target: str) -> Detected:
        """The likeliest language of texts with this target; its confidence is 0 without letters."""
        sources = [one.source for one in self.directions.all if one.target == target]
        found = self.detector.detect("\n".join(texts))
        found = found or [Detected((sources or self.directions.sources)[0], 0.0)]
        return next((one for one in found if one.language in sources), found[0])

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


def _drop(futures: _Futures) -> None:
    for future in futures.values():
        future.cancel()
