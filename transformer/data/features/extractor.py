"""A source to the vectors of a batch, by the settings of its kind."""

import numpy as np
from jaxtyping import Float

from transformer.data.features.arrays import read_array
from transformer.data.features.audio import read_audio, require_audio
from transformer.data.features.augmentation import masked, moved
from transformer.data.features.log_mel import log_mel
from transformer.data.features.pictures import patches, picture_of, read_picture, require_pictures
from transformer.data.features.reference import Reference
from transformer.data.features.windows import sound_windows
from transformer.settings.sources import SourceConfig

Vectors = Float[np.ndarray, "length channel"]


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

    def windows(self, source: str) -> list[tuple[float, Vectors]]:
        """The windows of a sound (`sound_windows`), each with the second at which it starts."""
        speech = self.config.speech
        reference = Reference.parse(source)
        samples = read_audio(reference, speech.sample_rate)
        return [
            (reference.start + start * reference.speed, self._grouped(log_mel(window, speech)))
            for start, window in sound_windows(samples, speech)
        ]

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

    def labels(self, row: Vectors) -> list[str]:
        """Name the vectors of a row for people.

        Speech: the second at which each starts, ``0.04s``. A picture: row and column of the patch,
        from 0. An array: the index.
        """
        config = self.config
        if config.kind == "speech":
            seconds = config.stride * config.speech.hop / config.speech.sample_rate
            return [f"{index * seconds:.2f}s" for index in range(len(row))]
        if config.kind == "image":
            columns = len(row) * config.image.patch_height // config.image.height
            return [f"{index // columns},{index % columns}" for index in range(len(row))]
        return [str(index) for index in range(len(row))]
