"""Files of sound to samples."""

import re
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float

from transformer.common.errors import InputError
from transformer.common.packages import require_package
from transformer.data.features.reference import Reference, opened, source_errors

_BLOCK = 1 << 20
# soundfile's number of samples if the header has none.
_UNKNOWN = 1 << 62
# What a program writes that does not know the length, since it writes to a pipe.
_WAV_UNKNOWN = 0x7FFF0000


def require_audio() -> None:
    """Raise MissingPackage unless the packages of the extra ``speech`` are installed."""
    for package in ("soundfile", "soxr"):
        require_package(package, "reading sound", "speech")


def read_audio(reference: Reference, sample_rate: int) -> Float[np.ndarray, " sample"]:
    """Read a sound as float32 samples from -1 to 1, at ``sample_rate`` Hz; channels are averaged.

    soundfile reads WAV, FLAC, OGG and what else libsndfile knows; soxr resamples. A speed changes
    tempo and pitch alike, by resampling (Ko et al. 2015, "Audio augmentation for speech
    recognition", section 2). An end after that of the file is that of the file.

    Raises InputError, which names the source, for a sound that cannot be read whole, and
    MissingPackage without the extra ``speech``.
    """
    require_audio()
    import soundfile
    import soxr

    with (
        source_errors(
            reference,
            "a sound",
            "replace it by a sound file such as WAV, FLAC or OGG, or leave it out",
            soundfile.SoundFileError,
        ),
        opened(reference) as file,
    ):
        samples, rate = _samples(file, reference)
        if not np.isfinite(samples).all():
            raise InputError("samples are NaN or infinite; write the file again, or leave it out")
        if rate != sample_rate:
            samples = soxr.resample(samples, rate, sample_rate)
        if not len(samples):
            raise InputError("the sound has no samples; write it again, or leave it out")
    return samples


def _samples(
    file: BinaryIO, reference: Reference
) -> tuple[Float[np.ndarray, " sample"], int | float]:
    """The samples of a part of a file, and their rate, by which it sounds at its speed."""
    import soundfile

    try:
        sound = soundfile.SoundFile(file)
    except soundfile.LibsndfileError as error:
        # The name in the message is that of a Python object.
        raise ValueError(error.error_string) from error
    with sound:
        rate = sound.samplerate
        frames = sound.frames
        if frames >= _UNKNOWN:
            raise InputError("the header has no length; write the file again, or as WAV")
        if frames and reference.start * rate >= frames:
            raise InputError(
                f"the sound ends at {frames / rate:g} s, before its part starts; correct #t="
            )
        start = round(reference.start * rate)
        end = frames
        if reference.end is not None:
            end = min(frames, round(reference.end * rate))
        sound.seek(start)
        # frame channel -> frame
        blocks = [
            block.mean(axis=1, dtype=np.float32)
            for block in sound.blocks(_BLOCK, frames=end - start, dtype="float32", always_2d=True)
        ]
        samples = np.concatenate([np.zeros(0, np.float32), *blocks])
        if len(samples) < end - start or _is_cut(sound):
            raise InputError("the file ends before its sound does; copy it again, or leave it out")
    return samples, rate * reference.speed if reference.speed != 1 else rate


def _is_cut(sound: Any) -> bool:
    """Whether a WAV file has fewer bytes than its header says; libsndfile reads what is there."""
    sizes = re.search(r"^data : (\d+) \(should be (\d+)\)", sound.extra_info, re.MULTILINE)
    if sound.format not in ("WAV", "WAVEX") or sizes is None:
        return False
    return int(sizes[2]) < int(sizes[1]) < _WAV_UNKNOWN
