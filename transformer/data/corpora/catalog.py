"""Published corpora, which are downloaded; published.toml lists them, with their sources."""

import logging
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import written_whole
from transformer.data.text.lines import file_digest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PublishedCorpus:
    """One corpus, with a file for each language of each split, or one file for both sides."""

    name: str
    languages: Sequence[str]
    """Language codes, or paths that end in one, as they stand in the names of the files."""
    splits: Mapping[str, str]
    """The files of each split, with "{}" for the language."""
    format: str | None = None
    """"tsv" or "scan" of one file with both sides; None: a plain file for each language."""
    url: str
    """Folder of the files, with a slash at the end."""
    sha256: Mapping[str, str]
    """Checksum of each file, and of each part of it."""
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For each file that is published in parts: the parts, to be concatenated."""

    def file_name(self, language: str | None, split: str) -> str:
        """Return the name of one file of a split; raises InputError for an unknown language."""
        known = {Path(name).name: name for name in self.languages}
        if language not in known:
            keys = "data.lang to one" if self.format else "data.source and data.target to two"
            raise InputError(
                f"{self.name} has no language {language!r}; set {keys} of {', '.join(known)}"
            )
        return self.splits[split].format(known[language])


def _published() -> dict[str, PublishedCorpus]:
    folder = Path(__file__).parent
    lines = (folder / "checksums.txt").read_text(encoding="utf-8").splitlines()
    sha256 = dict(line.split() for line in lines if not line.startswith("#"))
    entries = tomllib.loads((folder / "published.toml").read_text(encoding="utf-8"))
    return {
        name: PublishedCorpus(name=name, sha256=sha256, **entry) for name, entry in entries.items()
    }


PUBLISHED = _published()


def fetch(corpus: PublishedCorpus, language: str | None, split: str, cache: Path) -> Path:
    """Return the path of one file of one split, downloaded if it is not in the folder ``cache``."""
    name = corpus.file_name(language, split)
    if name not in corpus.parts:
        return _fetch(corpus, name, cache)
    whole = cache / name
    if not whole.is_file() or file_digest(whole).hex() != corpus.sha256[name]:
        parts = [_fetch(corpus, part, cache) for part in corpus.parts[name]]
        with written_whole(whole) as unfinished:
            unfinished.write_bytes(b"".join(part.read_bytes() for part in parts))
    return whole


def _fetch(corpus: PublishedCorpus, name: str, cache: Path) -> Path:
    import pooch

    checksum = corpus.sha256.get(Path(name).name)
    # pooch raises a ValueError for a name without a checksum.
    registry = {name: f"sha256:{checksum}"} if checksum else {}
    fetcher = pooch.create(path=cache, base_url=corpus.url, registry=registry, retry_if_failed=2)
    level = pooch.get_logger().level
    pooch.get_logger().setLevel(logging.WARNING)
    if not (cache / name).exists():
        logger.info("fetching %s%s", corpus.url, name)
    try:
        return Path(fetcher.fetch(name))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot fetch {corpus.url}{name} ({reason}); "
            "set data.root=FOLDER to a folder with the files, or try again"
        ) from error
    finally:
        pooch.get_logger().setLevel(level)


def find(corpus: PublishedCorpus, language: str | None, split: str, root: Path) -> Path:
    """Return the path of one file of one split in the user's folder, gzipped or not."""
    name = Path(corpus.file_name(language, split)).name
    for candidate in (name, f"{name.removesuffix('.gz')}.gz", name.removesuffix(".gz")):
        if (root / candidate).is_file():
            return root / candidate
    problem = f"has no {name}" if root.is_dir() else f"is no folder (seen from {Path.cwd()})"
    parts = corpus.parts.get(name, ())
    if parts and (root / parts[0]).is_file():
        problem = f"has {name} only in parts: cat {' '.join(parts)} > {name}"
    codes = [language] if corpus.format else corpus.languages
    names = [Path(corpus.file_name(code, name)).name for name in corpus.splits for code in codes]
    raise MissingFile(f"{root} {problem}; set data.root to the folder of {', '.join(names)}")
