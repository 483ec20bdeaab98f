"""Fetches the files of a published corpus, each checked against its sha256, or finds them.

Does not know the corpora (published.py), and does not read the text.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import written_whole
from transformer.data.corpora.catalog import PublishedCorpus
from transformer.data.text.lines import file_digest

logger = logging.getLogger(__name__)


def fetch(corpus: PublishedCorpus, language: str, split: str, cache: Path) -> Path:
    """Return the path of one side of one split, fetched if it is not in the cache.

    Args:
        corpus: where it lies.
        language: one of its languages.
        split: one of its splits.
        cache: folder that keeps its files.

    Raises:
        InputError: the corpus has no such language, or a file cannot be had as it should be.
    """
    name = corpus.file_name(language, split)
    if name not in corpus.parts:
        return _fetch(corpus, name, cache)
    whole = cache / name
    if not whole.is_file() or file_digest(whole).hex() != corpus.sha256[name]:
        parts = [_fetch(corpus, part, cache) for part in corpus.parts[name]]
        try:
            _join(parts, whole, corpus.sha256[name])
        except OSError as error:
            raise InputError(
                f"{whole} cannot be written ({error.strerror or error}); set data.cache=FOLDER"
            ) from error
    return whole


def _join(parts: Sequence[Path], whole: Path, sha256: str) -> None:
    """Write what the parts are, one after another, if it is what it should be."""
    with written_whole(whole) as unfinished:
        with unfinished.open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
        if (found := file_digest(unfinished).hex()) != sha256:
            raise InputError(
                f"{whole}: its parts make another file than they should (sha256 {found}); "
                "set data.root=FOLDER to a folder with the files, or try again"
            )


def _fetch(corpus: PublishedCorpus, name: str, cache: Path) -> Path:
    import pooch

    registry = {name: f"sha256:{corpus.sha256[name]}"}
    fetcher = pooch.create(path=cache, base_url=corpus.url, registry=registry, retry_if_failed=2)
    pooch.get_logger().setLevel(logging.WARNING)
    if not (cache / name).exists():
        logger.info("fetching %s%s", corpus.url, name)
    try:
        return Path(fetcher.fetch(name))
    except (OSError, ValueError) as error:  # no network or no such file; another checksum
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot fetch {corpus.url}{name} ({reason}); "
            "set data.root=FOLDER to a folder with the files, or try again"
        ) from error


def find(corpus: PublishedCorpus, language: str, split: str, root: Path) -> Path:
    """Return the path of one side of one split in a folder the user has, packed or not.

    Raises:
        MissingFile: there is no such folder, or no such file in it.
        InputError: the corpus has no such language, or the folder has only the parts of the file.
    """
    name = corpus.file_name(language, split)
    for candidate in (name, f"{name.removesuffix('.gz')}.gz", name.removesuffix(".gz")):
        if (root / candidate).is_file():
            return root / candidate
    parts = corpus.parts.get(name, ())
    if parts and all((root / part).is_file() for part in parts):
        raise InputError(
            f"{root} has {name} only in parts; join them there: cat {' '.join(parts)} > {name}"
        )
    problem = f"has no {name}" if root.is_dir() else f"is no folder (seen from {Path.cwd()})"
    raise MissingFile(
        f"{root} {problem}; set data.root to the folder of {', '.join(corpus.file_names)}"
    )
