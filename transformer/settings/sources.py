"""Settings of sources that are files: sound, pictures and arrays, as sequences of vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from transformer.common.schema import Range, Settings

SourceKind = Literal["text", "speech", "image", "vectors"]
FrontEndName = Literal["whisper", "s2t", "patches", "linear"]

STRIDES: dict[FrontEndName, int] = {"whisper": 2, "s2t": 4, "patches": 1, "linear": 1}
"""Frames that a front end makes one vector of the encoder from."""

DEFAULT_FRONT_ENDS: dict[SourceKind, FrontEndName] = {
    "speech": "s2t",
    "image": "patches",
    "vectors": "linear",
}

TRAINING_ONLY: dict[SourceKind, tuple[str, ...]] = {
    "speech": (
        "speeds",
        "time_masks",
        "time_mask",
        "time_mask_share",
        "frequency_masks",
        "frequency_mask",
    ),
    "image": ("shift", "flip"),
    "vectors": (),
}
"""Keys under ``data.KIND`` that a new run of a trained model may choose."""

Size = Annotated[int, Range(1, below=2**31)]
Count = Annotated[int, Range(0, below=2**31)]


@dataclass(frozen=True)
class SpeechConfig(Settings, group="data.speech"):
    """Sound as log-mel frames (Radford et al. 2022, section 2.2), and how training masks them."""

    sample_rate: Annotated[int, Range(1000, 192_000)] = 16_000
    """Hz; files of another rate are resampled."""
    mels: Size = 80
    window: Size = 400
    """Samples of the Fourier transform of a frame."""
    hop: Size = 160
    """Samples from one frame to the next."""
    seconds: Annotated[float, Range(above=0)] | None = None
    """Every sound is filled with silence, or cut, to this length, as Whisper's are to 30; null:
    each has its own."""
    speeds: Sequence[Annotated[float, Range(0.5, 2)]] = (1.0,)
    """Each training sound is also heard at these speeds (Ko et al. 2015); 1 is its own."""
    time_masks: Count = 0
    time_mask: Size = 40
    """Most frames of a mask in time (SpecAugment, Park et al. 2019, section 2: T)."""
    time_mask_share: Annotated[float, Range(above=0, most=1)] = 0.2
    """Most of the frames that one mask in time covers (there, p)."""
    frequency_masks: Count = 0
    frequency_mask: Size = 27
    """Most mels of a mask in frequency (there, F)."""

    def _objections(self) -> Iterator[str]:
        if self.hop > self.window:
            yield f"data.speech.hop={self.hop} leaves out samples of windows of {self.window}"
        if self.frequency_masks and self.frequency_mask > self.mels:
            yield f"data.speech.frequency_mask={self.frequency_mask} is more than all mels"
        if self.seconds is not None and round(self.seconds * self.sample_rate) < self.hop:
            yield f"data.speech.seconds={self.seconds} is shorter than one frame"
        if not self.speeds:
            yield "data.speech.speeds names none; set [1.0]"


@dataclass(frozen=True)
class ImageConfig(Settings, group="data.image"):
    """Pictures as patches (Dosovitskiy et al. 2021, section 3.1), and how training changes them."""

    height: Size = 32
    """Pixels that a picture is scaled to."""
    width: Size | None = None
    """Likewise; null: as wide as the picture is in proportion, up to a whole patch."""
    channels: Literal[1, 3] = 1
    """1: gray; 3: red, green and blue."""
    patch_height: Size = 8
    patch_width: Size = 8
    mean: float = 0.5
    """Subtracted from pixels from 0 to 1, which ``std`` then divides."""
    std: Annotated[float, Range(above=0)] = 0.5
    shift: Count = 0
    """Training cuts the picture out of itself with a border of so many pixels."""
    flip: Annotated[float, Range(0, 1)] = 0.0
    """The probability that training mirrors a picture, left for right."""

    def _objections(self) -> Iterator[str]:
        if self.height % self.patch_height:
            yield (
                f"data.image.height={self.height} is not a multiple of "
                f"data.image.patch_height={self.patch_height}"
            )
        if (self.width or 0) % self.patch_width:
            yield (
                f"data.image.width={self.width} is not a multiple of "
                f"data.image.patch_width={self.patch_width}"
            )


@dataclass(frozen=True)
class VectorsConfig(Settings, group="data.vectors"):
    """Arrays of NumPy, ``length channels``, as they are."""

    channels: Count = 0
    """Of each vector; training needs it."""


@dataclass(frozen=True)
class SourceConfig(Settings):
    """How a file becomes a sequence of vectors; a tokenizer of such sources holds it."""

    kind: Literal["speech", "image", "vectors"]
    stride: Size = 1
    """Frames side by side in one vector (`STRIDES`)."""
    speech: SpeechConfig = field(default_factory=SpeechConfig)
    image: ImageConfig = field(default_factory=ImageConfig)
    vectors: VectorsConfig = field(default_factory=VectorsConfig)

    @property
    def channels(self) -> int:
        """Numbers of one vector."""
        if self.kind == "speech":
            return self.stride * self.speech.mels
        if self.kind == "image":
            image = self.image
            return image.patch_height * image.patch_width * image.channels
        return self.vectors.channels

    def without_training(self) -> "SourceConfig":
        """The config without what only training does, and what other kinds of sources have."""
        speech = SpeechConfig()
        image = ImageConfig()
        if self.kind == "speech":
            usual = {name: getattr(speech, name) for name in TRAINING_ONLY["speech"]}
            speech = replace(self.speech, **usual)
        if self.kind == "image":
            image = replace(self.image, shift=image.shift, flip=image.flip)
        return replace(self, speech=speech, image=image)
