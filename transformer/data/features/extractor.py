"""A source to the vectors of a batch, by the settings of its kind."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from transformer.data.features.arrays import read_array
from transformer.data.features.audio import read_audio, require_audio, sound_seconds
from transformer.data.features.augmentation import masked, moved
from transformer.data.features.log_mel import log_mel
from transformer.data.features.pictures import patches, picture_of, read_picture, require_pictures
from transformer.data.features.read_source import ReadSource, Times
from transformer.data.features.reference import Reference
from transformer.data.features.windows import sound_windows
from transformer.data.tokenization.tags import parse_tags
from transformer.settings.sources import SourceConfig

Vectors = Float[np.ndarray, "length channel"]

Change = Callable[[Any], Any]

_PIECE = 60.0
"""Seconds of a long sound that are in memory as samples."""


class FeatureExtractor:
    """Reads files of one kind as sequences of vectors; it knows nothing of batches and models.

    NaN marks padding: no file gives it. Raises MissingPackage without the packages of the kind.
    """

    def __init__(self, config: SourceConfig) -> None:
        if config.kind == "speech":
            require_audio()
        elif config.kind == "image":
            require_pictures()
        self.config = config

    def vectors(self, source: str, *, training_seed: int | None = None) -> Vectors:
        """Read a source (`Reference`) as float32 vectors of ``config.channels`` numbers.

        A vector of speech is ``config.stride`` log-mel frames, one after another; frames that the
        last vector lacks are NaN. A vector of a picture is a patch. With a seed, the vectors are
        also `augmented`. Raises InputError, which names the source.
        """
        config = self.config
        reference = Reference.parse(source)
        if config.kind == "speech":
            row = self._grouped(
                log_mel(read_audio(reference, config.speech.sample_rate), config.speech)
            )
        elif config.kind == "image":
            row = patches(read_picture(reference, config.image), config.image)
        else:
            row = read_array(reference, config.vectors)
        return row if training_seed is None else self.augmented(row, training_seed)

    def read(self, source: str, change: Change = lambda signal: signal) -> ReadSource:
        """Read a source to translate; a blank one has no vectors.

        ``change`` gets the samples of a sound, the pixels of a picture, ``height width channel``,
        or an array, before it becomes vectors.

        A sound may be long: it is read in pieces of a minute or, where each source has
        ``speech.seconds``, in `sound_windows`, each filled to so many. A sound of one piece has the
        same vectors as in training. Raises InputError, which names the source.
        """
        tags = parse_tags(source)
        if not source.strip():
            return ReadSource(source, np.zeros((0, self.config.channels), np.float32), tags=tags)
        reference = Reference.parse(source)
        image = self.config.image
        if self.config.kind == "image":
            row = patches(change(read_picture(reference, image)), image)
            return ReadSource(source, row, tags=tags)
        if self.config.kind == "vectors":
            return ReadSource(source, change(read_array(reference, self.config.vectors)), tags=tags)
        speech = self.config.speech
        if speech.seconds is not None:
            return self._in_windows(source, reference, change)
        seconds = sound_seconds(reference)
        step = self.config.stride * speech.hop
        size = step * max(1, int(_PIECE * speech.sample_rate / step))
        # Of the file, whose times are those before its speed changes.
        piece = size / speech.sample_rate * reference.speed
        rows = []
        for index in range(max(1, int(np.ceil(seconds / piece - 1e-6)))):
            start = reference.start + index * piece
            is_last = (index + 1) * piece >= seconds - 1e-6
            end = reference.end if is_last else start + piece
            part = replace(reference, start=start, end=end)
            samples = read_audio(part, speech.sample_rate)
            if not is_last:
                # Resampling may round to a sample more or less.
                samples = np.pad(samples[:size], (0, max(0, size - len(samples))))
            rows.append(self._grouped(log_mel(change(samples), speech)))
        end = reference.start + seconds
        times = Times(reference.start, end, piece * step / size, reference.speed)
        return ReadSource(source, np.concatenate(rows), times, tags)

    def _in_windows(self, source: str, reference: Reference, change: Change) -> ReadSource:
        speech = self.config.speech
        step = self.config.stride * speech.hop / speech.sample_rate * reference.speed
        windows = []
        rows = []
        for start, end, samples in sound_windows(reference, speech):
            windows.append(Times(start, end, step, reference.speed))
            rows.append(self._grouped(log_mel(change(samples), speech)))
        vectors = np.concatenate(rows)
        return ReadSource(source, vectors, tags=parse_tags(source), windows=tuple(windows))

    @property
    def window(self) -> int | None:
        """Vectors of every source, if all sounds have the same length."""
        speech = self.config.speech
        if self.config.kind != "speech" or speech.seconds is None:
            return None
        frames = round(speech.seconds * speech.sample_rate) // speech.hop
        return -(-frames // self.config.stride)

    def augmented(self, row: Vectors, seed: int) -> Vectors:
        """Change a row of `vectors` as training does; a function of the row and the seed.

        Speech is masked, a picture moved; an array stays as it is.
        """
        config = self.config
        random = np.random.default_rng(seed)
        if config.kind == "speech":
            # length (frame mel) -> (length frame) mel
            frames = row.reshape(-1, config.speech.mels)
            frames = frames[~np.isnan(frames[:, 0])]
            return self._grouped(masked(frames, config.speech, random))
        if config.kind == "image":
            picture = moved(picture_of(row, config.image), config.image, random)
            return patches(picture, config.image)
        return row.copy()

    def _grouped(self, frames: Float[np.ndarray, "frame mel"]) -> Vectors:
        stride = self.config.stride
        missing = -len(frames) % stride
        filled = np.pad(frames, ((0, missing), (0, 0)), constant_values=np.nan)
        # (length stride) mel -> length (stride mel)
        return filled.reshape(-1, stride * frames.shape[1])

    def labels(self, row: Vectors, times: Times | None = None) -> list[str]:
        """Name the vectors of a row for people.

        Speech: the second at which each starts, ``0.04s``, by ``times`` or from 0. A picture: row
        and column of the patch, from 0. An array: the index.
        """
        config = self.config
        if config.kind == "speech":
            start = 0.0
            step = config.stride * config.speech.hop / config.speech.sample_rate
            if times is not None:
                start = times.start
                step = times.step
            return [f"{start + index * step:.2f}s" for index in range(len(row))]
        if config.kind == "image":
            columns = len(row) * config.image.patch_height // config.image.height
            return [f"{index // columns},{index % columns}" for index in range(len(row))]
        return [str(index) for index in range(len(row))]
