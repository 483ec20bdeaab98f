"""Formats of files by their first bytes, to explain why a decoder refuses one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from typing import NamedTuple

from transformer.common.errors import InputError
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
def content_errors(
    file: BufferedIOBase, kind: SourceKind, *errors: type[Exception]
) -> Iterator[None]:
    """Turn an OSError, a ValueError or one of these into an InputError, if the format is known."""
    expected: tuple[type[Exception], ...] = (OSError, ValueError, *errors)
    try:
        yield
    except expected as error:
        file.seek(0)
        start = file.read(_LONGEST)
        found = next((one for one in _SIGNATURES if one.start.match(start)), None)
        if found is None:
            raise
        if found.kind != kind:
            raise InputError(
                f"its content is {found.name}, which data.source_kind={kind} does not read; "
                f"replace it, or train a model with data.source_kind={found.kind}"
            ) from error
        if kind == "vectors":
            raise  # a whole file may have another type of numbers
        reason = " ".join(str(error).split())[:200].rstrip(". ") or type(error).__name__
        raise InputError(
            f"the {found.name} file is damaged or cut ({reason}); copy it again, or leave it out"
        ) from error
