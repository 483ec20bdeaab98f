"""Sources whose format is known by their first bytes, to explain why a decoder refuses one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from typing import NamedTuple

from transformer.common.errors import InputError
from transformer.data.features.reference import Reference, opened, reason_of, source_errors
from transformer.settings.sources import SourceKind


class Signature(NamedTuple):
    """A format of files, and the kind of sources that reads it."""

    start: re.Pattern[bytes]
    name: str
    kind: SourceKind


_SIGNATURES = [
    Signature(re.compile(rb"RIFF....WAVE", re.DOTALL), "WAV", "speech"),
    Signature(re.compile(rb"fLaC"), "FLAC", "speech"),
    Signature(re.compile(rb"OggS"), "OGG", "speech"),
    Signature(re.compile(rb"ID3|\xff[\xf2\xf3\xfa\xfb]"), "MP3", "speech"),
    Signature(re.compile(rb"\x89PNG"), "PNG", "image"),
    Signature(re.compile(rb"\xff\xd8\xff"), "JPEG", "image"),
    Signature(re.compile(rb"\x93NUMPY"), ".npy", "vectors"),
]
_LONGEST = 12


@contextmanager
def opened_as(
    kind: SourceKind, reference: Reference, what: str, advice: str, *errors: type[Exception]
) -> Iterator[BufferedIOBase]:
    """The bytes of a source (`opened`), whose `source_errors` tell its format if that is known."""
    expected: tuple[type[Exception], ...] = (OSError, ValueError, *errors)
    with source_errors(reference, what, advice, *errors), opened(reference) as file:
        try:
            yield file
        except expected as error:
            file.seek(0)
            start = file.read(_LONGEST)
            signature = next((known for known in _SIGNATURES if known.start.match(start)), None)
            if signature is None:
                raise
            if signature.kind != kind:
                raise InputError(
                    f"its content is {signature.name}, which data.source_kind={kind} does not "
                    "read; replace it, or train a model with "
                    f"data.source_kind={signature.kind}"
                ) from error
            if kind == "vectors":
                raise  # a whole file may have another type of numbers
            raise InputError(
                f"the {signature.name} file cannot be read ({reason_of(error)}); copy it again, "
                "convert it, or leave it out"
            ) from error
