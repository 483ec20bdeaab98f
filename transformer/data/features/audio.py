"""Files of sound to samples."""

import io
import mmap
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedIOBase
from typing import Any

import numpy as np
from jaxtyping import Float

from transformer.common.errors import InputError
from transformer.common.packages import require_package
from transformer.data.features.reference import Reference
from transformer.data.features.signatures import opened_as

_BLOCK = 1 << 20
# Hz; what a header has below is damage, and would fill the memory.
_LOWEST_RATE = 1000
# Samples of a byte: an MP3 of 8 kbit/s has 24. libsndfile believes a longer header, and goes on in
# silence.
_MOST_OF_MP3 = 100
_FIRST_FRAME = 1 << 11
# kbit/s of layer III, of MPEG-1 and of others, and Hz of MPEG-1 (ISO 11172-3, 13818-3).
_BIT_RATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
)
_RATES = (44_100, 48_000, 32_000)
# Samples that are no part of a sound, at most: those around it, of 12 bits each, and a header.
_TRIMMED = 10_000
_CUT = "the file ends before its sound does; copy it again, or leave it out"
_CHAINED = (
    "the file has several streams of sound one after another, and only the first would be read; "
    "convert it (ffmpeg -i OLD.ogg NEW.wav), or give each stream as a file"
)
_MORE = (
    "the file has more sound than its first frame says, which would not be read; convert it "
    "(ffmpeg -i OLD.mp3 NEW.wav), or leave it out"
)
_OGG_PAGE = b"OggS"
_OGG_HEADER = 27
_OGG_FIRST = 2
# soundfile's number of samples if the header has none.
_UNKNOWN = 1 << 62
# What a program writes that does not know the length, since it writes to a pipe.
_WAV_UNKNOWN = 0x7FFF0000

_ADVICE = "replace it by a sound file such as WAV, FLAC or OGG, or leave it out"


def require_audio() -> None:
    """Raise MissingPackage unless the packages of the extra ``speech`` are installed."""
    for package in ("soundfile", "soxr"):
        require_package(package, "reading sound", "speech")


def read_audio(reference: Reference, sample_rate: int) -> Float[np.ndarray, " sample"]:
    """Read a sound as float32 samples from -1 to 1, at ``sample_rate`` Hz; channels are averaged.

    soundfile reads WAV, FLAC, OGG and what else libsndfile knows; soxr resamples. A speed changes
    tempo and pitch alike, by resampling (Ko et al. 2015, "Audio augmentation for speech
    recognition"). An end after that of the file is that of the file.

    Raises InputError, which names the source, for a sound that cannot be read whole, and
    MissingPackage without the extra ``speech``.
    """
    require_audio()
    import soundfile
    import soxr

    with opened_as("speech", reference, "a sound", _ADVICE, soundfile.SoundFileError) as file:
        samples, rate = _samples(file, reference)
        if not np.isfinite(samples).all():
            raise InputError("samples are NaN or infinite; write the file again, or leave it out")
        if rate != sample_rate:
            samples = soxr.resample(samples, rate, sample_rate)
        if not len(samples):
            raise InputError("the sound has no samples; write it again, or leave it out")
    return samples


def sound_seconds(reference: Reference) -> float:
    """Seconds of a sound, or of its part, before its speed changes.

    Reads the header alone, of an MP3 once the whole file. Raises as `read_audio` does.
    """
    require_audio()
    import soundfile

    with (
        opened_as("speech", reference, "a sound", _ADVICE, soundfile.SoundFileError) as file,
        _opened_sound(file) as sound,
    ):
        end = sound.frames / sound.samplerate
    return (end if reference.end is None else min(end, reference.end)) - reference.start


def _samples(
    file: BufferedIOBase, reference: Reference
) -> tuple[Float[np.ndarray, " sample"], int | float]:
    """The samples of a part of a file, and their rate, by which it sounds at its speed."""
    with _opened_sound(file) as sound:
        rate = sound.samplerate
        frames = sound.frames
        if frames and reference.start * rate >= frames:
            raise InputError(
                f"the sound ends at {frames / rate:g} s, before its part starts; correct #t="
            )
        start = round(reference.start * rate)
        end = frames if reference.end is None else min(frames, round(reference.end * rate))
        sound.seek(start)
        size = max(1, _BLOCK // sound.channels)
        blocks = [np.zeros(0, np.float32)]
        missing = end - start
        while missing > 0:
            block = sound.read(min(size, missing), dtype="float32", always_2d=True)
            if not len(block):
                if _is_length_known(sound, file):
                    raise InputError(_CUT)
                break
            # frame channel -> frame
            blocks.append(block.mean(axis=1, dtype=np.float32))
            missing -= len(block)
    return np.concatenate(blocks), rate * reference.speed if reference.speed != 1 else rate


@contextmanager
def _opened_sound(file: BufferedIOBase) -> Iterator[Any]:
    """A file of sound whose header can be believed, as soundfile.SoundFile."""
    import soundfile

    with ExitStack() as stack:
        # By its number: the library reads a Python object at half the speed, and prints the
        # tracebacks of wrong positions.
        if isinstance(file, io.BytesIO):
            copy = stack.enter_context(tempfile.TemporaryFile())
            copy.write(file.getbuffer())
            copy.seek(0)
            number = copy.fileno()
        else:
            number = file.fileno()
        _check_ogg(file)
        os.lseek(number, 0, os.SEEK_SET)
        try:
            sound = soundfile.SoundFile(number, closefd=False)
        except soundfile.LibsndfileError as error:
            # The name in the message is that number.
            raise ValueError(error.error_string) from error
        stack.enter_context(sound)
        if sound.samplerate < _LOWEST_RATE:
            raise InputError(f"its header has a rate of {sound.samplerate} Hz; write it again")
        if sound.frames >= _UNKNOWN:
            raise InputError("its header has no length; write it again, or as WAV")
        if _is_cut(sound):
            raise InputError(_CUT)
        if sound.format == "MP3":
            about = os.fstat(number)
            identity = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
            if sound.frames > _MOST_OF_MP3 * about.st_size:
                raise InputError(_CUT)
            if _mp3_samples(_Content(number, identity)) > sound.frames + _TRIMMED:
                raise InputError(_MORE)
        yield sound


def _is_length_known(sound: Any, file: BufferedIOBase) -> bool:
    """Whether the length of a sound is that of its header, and not a guess by the first frame.

    It is a guess for an MP3 without the header of Xing or Fraunhofer, which is in its first frame,
    after tags (ID3v2) whose size has 7 bits in each of 4 bytes.
    """
    if sound.format != "MP3":
        return True
    file.seek(0)
    start = file.read(10)
    tags = sum((byte & 127) << shift for byte, shift in zip(start[6:], (21, 14, 7, 0), strict=True))
    file.seek(tags if start.startswith(b"ID3") else 0)
    frame = file.read(_FIRST_FRAME)
    return any(name in frame for name in (b"Xing", b"Info", b"VBRI"))


@dataclass(frozen=True)
class _Content:
    """What an open file has; it is the same in another number of the file until that is written."""

    number: int = field(compare=False)
    identity: tuple[int, int, int, int]


@lru_cache(maxsize=4096)
def _mp3_samples(content: _Content) -> int:
    """The samples of all frames, whatever is between them; libsndfile reads as many as it expects.

    It guesses a number if no header has it, and the header of the first of several MP3 that were
    joined does not count the others. A file is looked through once: parts of it may be read often.
    """
    count = 0
    start = 0
    # The position of the file is libsndfile's.
    with mmap.mmap(content.number, 0, access=mmap.ACCESS_READ) as data:
        while (start := data.find(b"\xff", start)) >= 0:
            size, samples = _mp3_frame(data[start : start + 3])
            end = start + size
            # Bytes of a tag may look like the start of a frame, but seldom twice.
            if size and (end >= len(data) or _mp3_frame(data[end : end + 3])[0]):
                count += samples
                start = end
            else:
                start += 1
    return count


@lru_cache(maxsize=4096)
def _mp3_frame(header: bytes) -> tuple[int, int]:
    """The bytes and samples of a frame of layer III by its first three bytes; 0: no frame."""
    if len(header) < 3:
        return 0, 0
    sync, kind, form = header
    if sync != 0xFF or kind >> 5 != 0b111 or kind >> 1 & 3 != 1:
        return 0, 0
    version = (2, None, 1, 0)[kind >> 3 & 3]  # MPEG-2.5, none, MPEG-2, MPEG-1
    rate = form >> 2 & 3
    if version is None or rate == len(_RATES):
        return 0, 0
    bits = _BIT_RATES[version > 0][form >> 4] * 1000
    samples = 576 if version else 1152
    size = samples * bits // 8 // (_RATES[rate] >> version) + (form >> 1 & 1)
    return (size, samples) if bits else (0, 0)


def _is_cut(sound: Any) -> bool:
    """Whether a WAV file has fewer bytes than its header says; libsndfile reads what is there."""
    sizes = re.search(r"^data : (\d+) \(should be (\d+)\)", sound.extra_info, re.MULTILINE)
    if sound.format not in ("WAV", "WAVEX") or sizes is None:
        return False
    return int(sizes[2]) < int(sizes[1]) < _WAV_UNKNOWN


def _check_ogg(file: BufferedIOBase) -> None:
    """Raise InputError for an Ogg file that ends in a page, or with a stream after the first.

    libsndfile reads the whole pages of the first stream, and is silent about others. The pages are
    those of RFC 3533, section 6. The last need not be marked as the end (RFC 7845, section 3); what
    follows it and is no page is a tag. Streams side by side all begin before the sound of one.
    """
    file.seek(0)
    if file.read(len(_OGG_PAGE)) != _OGG_PAGE:
        return
    size = file.seek(0, os.SEEK_END)
    page = 0
    in_sound = False
    while page < size:
        file.seek(page)
        header = file.read(_OGG_HEADER)
        if not header.startswith(_OGG_PAGE[: len(header)]):
            # libsndfile, too, goes on at the next page.
            file.seek(page)
            following = file.read().find(_OGG_PAGE)
            if following < 0:
                return
            page += following
            continue
        if len(header) < _OGG_HEADER:
            raise InputError(_CUT)
        is_first = bool(header[5] & _OGG_FIRST)
        if is_first and in_sound:
            raise InputError(_CHAINED)
        in_sound = not is_first
        lengths = file.read(header[26])
        page += _OGG_HEADER + header[26] + sum(lengths)
    if page > size:
        raise InputError(_CUT)
