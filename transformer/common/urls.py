"""Opens files wherever fsspec reads: disks, object stores, web servers."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import pyarrow as pa

from transformer.common.errors import InputError

_READ_AHEAD = 1 << 20
# Libraries of fsspec whose errors, all about the connection, are not OSErrors.
_CLIENTS = ("aiohttp", "botocore", "gcsfs", "azure", "requests", "paramiko")
_KNOWN = (OSError, ValueError, ImportError, EOFError, zlib.error, pa.ArrowException)


@contextmanager
def url_errors(
    url: str, advice: str = "check the name and the access", done: str = "read"
) -> Iterator[None]:
    """Turn an error of a file system of fsspec into an InputError that names the URL."""
    try:
        yield
    except Exception as error:
        client = type(error).__module__.partition(".")[0] in _CLIENTS
        if isinstance(error, InputError) or not (client or isinstance(error, _KNOWN)):
            raise
        # fsspec says no more than the URL where a web server fails.
        cause = error.__cause__ if str(error) in url and error.__cause__ else error
        reason = (str(cause).splitlines() or [type(cause).__name__])[0].partition(", url=")[0]
        raise InputError(f"{url}: cannot be {done} ({reason}); {advice}") from error


@contextmanager
def opened_url(url: str) -> Iterator[io.BufferedReader]:
    """A file to read, unpacked if its name ends with .gz; errors are those of fsspec."""
    with fsspec.open(url, "rb") as file:
        raw = gzip.GzipFile(fileobj=file) if url.partition("?")[0].endswith(".gz") else file
        # A file of the disk has a buffer of its own.
        local: Any = getattr(raw, "f", None)
        if not isinstance(local, io.BufferedReader):
            local = io.BufferedReader(raw, _READ_AHEAD)
        yield local
