"""Links from a report to the sounds and pictures that its sentences come from."""

import os
from pathlib import Path
from urllib.parse import quote

from transformer.common.errors import InputError
from transformer.data.features.reference import Reference


def media_link(source: str, folder: Path) -> str | None:
    """The address of a source that is a file, seen from the folder of the page.

    It is relative, so that page and files can move together; a part of a sound is a media fragment,
    which browsers play alone. None for a file in a Parquet file, or elsewhere: a page loads nothing
    from a network.
    """
    try:
        reference = Reference.parse(source)
    except InputError:
        return None
    if not source.strip() or reference.row is not None or "://" in reference.path:
        return None
    link = quote(os.path.relpath(reference.path, folder))
    if not reference.start and reference.end is None:
        return link
    end = "" if reference.end is None else f",{reference.end:g}"
    return f"{link}#t={reference.start:g}{end}"
