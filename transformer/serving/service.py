"""Texts in, translations out, for many clients at once: sentences, the queue and the cache.

It knows neither HTTP nor the form of an answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Executor
from functools import partial

from transformer.common.errors import InputError
from transformer.serving.config import Limits
from transformer.serving.formats.placeholders import translate_with_placeholders
from transformer.serving.languages.detection import Detected, Detector
from transformer.serving.languages.directions import Directions
from transformer.serving.languages.sentences import Part, Splitting, plain_blanks, split_sentences
from transformer.serving.metrics import Metrics
from transformer.serving.micro_batching import Job, MicroBatcher
from transformer.serving.translations import (
    Constrain,
    Options,
    Sentence,
    SentenceTranslation,
    TextTranslation,
)

_LONGEST_REMEMBERED = 1000
"""Characters of a sentence in the cache."""

_SAMPLE = "A b."
"""What the models translate before the first request, which would be slow otherwise."""

_Futures = dict[Sentence, "asyncio.Future[SentenceTranslation]"]


class TranslationService:
    """Translates the texts of all clients with the models of some directions.

    ``batch_tokens`` are the maximal padded source tokens of a batch, and ``cache`` the number of
    sentences whose translation is remembered. The models were loaded in ``thread``, their own.
    """

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
            # The thread would wait for jobs, and the process for the thread.
            self.batcher.close(0)
            raise

    async def translate(
        self,
        texts: Sequence[str],
        options: Options,
        *,
        splitting: Splitting = "sentences",
        constrain: Constrain | None = None,
    ) -> list[TextTranslation]:
        """Translate texts, each sentence by itself, or each line (``Direction.whole_lines``).

        Args:
            texts: Any strings; their blanks and line ends are kept, and a sentence without a letter
                comes back as it is.

        Raises:
            QueueFull: Too many sentences wait already.
            TimeoutError: ``limits.seconds`` are over; sentences that still wait are dropped.
            InputError: The model cannot do what is asked, or it is too much for one request.
        """
        async with asyncio.timeout(self.limits.seconds):
            split, futures = await self._submit(texts, options, splitting, constrain)
            try:
                await asyncio.gather(*futures.values())
            finally:
                _drop(futures)
        return [
            TextTranslation(tuple((part, futures[sentence].result()) for part, sentence in parts))
            for parts in split
        ]

    async def stream(self, text: str, options: Options) -> AsyncGenerator[TextTranslation]:
        """Translate a text and yield its sentences, in their order, as they are finished.

        Joined, they are the translation of the text. The arguments and errors are those of
        ``translate``.
        """
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        async with asyncio.timeout_at(deadline):
            [parts], futures = await self._submit([text], options, "sentences", None)
        try:
            for part, sentence in parts:
                async with asyncio.timeout_at(deadline):
                    found = await futures[sentence]
                yield TextTranslation(((part, found),))
        finally:
            _drop(futures)

    async def _submit(
        self,
        texts: Sequence[str],
        options: Options,
        splitting: Splitting,
        constrain: Constrain | None,
    ) -> tuple[list[list[tuple[Part, Sentence]]], "_Futures"]:
        """The sentences of each text, and their translations, which may be to come."""
        # In a thread, so that a long text keeps no other client waiting.
        split, jobs = await asyncio.to_thread(self._prepare, texts, options, splitting, constrain)
        known = {one: found for one in jobs if (found := self._remembered(one, options))}
        missing = [job for sentence, job in jobs.items() if sentence not in known]
        if missing:
            self.batcher.submit(missing)
        futures: _Futures = {}
        for sentence, job in jobs.items():
            if sentence in known:
                job.result.set_result(known[sentence])
            futures[sentence] = asyncio.wrap_future(job.result)
            if sentence not in known:
                # At once: if the request fails, the same one needs less the next time.
                futures[sentence].add_done_callback(partial(self._remember, sentence, options))
        return split, futures

    def _prepare(
        self,
        texts: Sequence[str],
        options: Options,
        splitting: Splitting,
        constrain: Constrain | None,
    ) -> tuple[list[list[tuple[Part, Sentence]]], dict[Sentence, Job]]:
        """The sentences of each text, and a job for each of them that is another."""
        split, jobs = [], dict[Sentence, Job]()
        direction, count = options.direction, 0
        # These need memory by the square of the length.
        squared = options.links or options.confidence or options.attention
        lines = direction.whole_lines
        for text in texts:
            parts = split_sentences(text, direction.source, "lines" if lines else splitting)
            count += sum(bool(part.sentence) for part in parts)
            if count > self.limits.waiting:
                raise InputError(
                    f"one request may have {self.limits.waiting} sentences; send fewer at a time"
                )
            whole = [part.sentence for part in parts]
            plain = whole if lines else list(map(plain_blanks, whole))
            sentences = [Sentence(text, constrain and constrain(text)) for text in plain]
            split.append(list(zip(parts, sentences, strict=True)))
            for _, sentence in split[-1]:
                if sentence not in jobs:
                    length = direction.length(sentence.text)
                    if squared and length > direction.translator.max_subwords:
                        raise InputError(
                            "alignment, confidence and attention take sentences of up to "
                            f"{direction.translator.max_subwords} tokens, not {length}"
                        )
                    jobs[sentence] = Job(options, sentence, length)
        return split, jobs

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
        # Attention grows with the square of the length, and few ask for it.
        small = len(sentence.text) <= _LONGEST_REMEMBERED and not options.attention
        if self._cache and small:
            self._cached[options, sentence] = translation
            if len(self._cached) > self._cache:
                self._cached.popitem(last=False)


def _drop(futures: _Futures) -> None:
    """Forget what nobody waits for; what is done stays."""
    for future in futures.values():
        future.cancel()
