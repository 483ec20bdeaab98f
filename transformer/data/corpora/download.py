"""Downloads the files of a published corpus and checks their sha256, or finds them in a folder.

Does not read the text.
"""

import logging
from pathlib import Path

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import written_whole
from transformer.data.corpora.catalog import PublishedCorpus
from transformer.data.text.lines import file_digest

logger = logging.getLogger(__name__)


def fetch(corpus: PublishedCorpus, language: str, split: str, cache: Path) -> Path:
    """Return the path of one side of one split, downloaded if it is not in the folder ``cache``.

    Raises:
        InputError: the corpus has no such language; a download fails or has another checksum; a
            file cannot be written.
    """
    name = corpus.file_name(language, split)
    if name not in corpus.parts:
        return _fetch(corpus, name, cache)
    whole = cache / name
    if not whole.is_file() or file_digest(whole).hex() != corpus.sha256[name]:
        parts = [_fetch(corpus, part, cache) for part in corpus.parts[name]]
        try:
            with written_whole(whole) as unfinished:
                unfinished.write_bytes(b"".join(part.read_bytes() for part in parts))
                if (found := file_digest(unfinished).hex()) != corpus.sha256[name]:
                    raise InputError(
                        f"{whole}: its parts have another checksum (sha256 {found}); "
                        "set data.root=FOLDER to a folder with the files, or try again"
                    )
        except OSError as error:
            raise InputError(
                f"{whole} cannot be written ({error.strerror or error}); set data.cache=FOLDER"
            ) from error
    return whole


def _fetch(corpus: PublishedCorpus, name: str, cache: Path) -> Path:
    import pooch

    registry = {name: f"sha256:{corpus.sha256[name]}"}
    fetcher = pooch.create(path=cache, base_url=corpus.url, registry=registry, retry_if_failed=2)
    pooch.get_logger().setLevel(logging.WARNING)
    if not (cache / name).exists():
        logger.info("fetching %s%s", corpus.url, name)
    try:
        return Path(fetcher.fetch(name))
    except (OSError, ValueError) as error:  # no network, no such file, or another checksum
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot fetch {corpus.url}{name} ({reason}); "
            "set data.root=FOLDER to a folder with the files, or try again"
        ) from error


def find(corpus: PublishedCorpus, language: str, split: str, root: Path) -> Path:
    """Return the path of one side of one split in the user's folder, gzipped or not.

    Raises:
        MissingFile: there is no such folder, or no such file in it.
        InputError: the corpus has no such language.
    """
    name = corpus.file_name(language, split)
    for candidate in (name, f"{name.removesuffix('.gz')}.gz", name.removesuffix(".gz")):
        if (root / candidate).is_file():
            return root / candidate
    parts = corpus.parts.get(name, ())
    if not root.is_dir():
        problem = f"is no folder (seen from {Path.cwd()})"
    elif parts and (root / parts[0]).is_file():
        problem = f"has {name} only in parts: cat {' '.join(parts)} > {name}"
    else:
        problem = f"has no {name}"
    raise MissingFile(
        f"{root} {problem}; set data.root to the folder of {', '.join(corpus.file_names)}"
    )
