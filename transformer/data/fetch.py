"""Fetches Multi30k (Elliott et al. 2016), each file checked against its sha256.

Knows where the files are and what is in them to the byte; does not read them.
"""

import logging
from pathlib import Path

from transformer.errors import InputError

LANGUAGES = ("en", "de", "fr")
# Split names of this project to those of the corpus.
SPLITS = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
URL = "https://github.com/multi30k/dataset/raw/a3d2e0d/data/task1/raw/"
SHA256 = {
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}

logger = logging.getLogger(__name__)


def fetch_multi30k(language: str, split: str, cache: Path, url: str = URL) -> Path:
    """Return the path of one side of one split, fetched if it is not in the cache.

    Args:
        language: one of LANGUAGES.
        split: one of SPLITS.
        cache: folder that keeps the files.
        url: where the files lie, with a slash at the end.

    Raises:
        InputError: the corpus has no such language, or the file cannot be had as it should be.
    """
    import pooch

    name = _name(language, split)
    registry = {name: f"sha256:{SHA256[name]}"}
    fetcher = pooch.create(path=cache, base_url=url, registry=registry, retry_if_failed=2)
    pooch.get_logger().setLevel(logging.WARNING)
    if not (cache / name).exists():
        logger.info("fetching %s%s", url, name)
    try:
        return Path(fetcher.fetch(name))
    except (OSError, ValueError) as error:  # no network or no such file; another checksum
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot fetch {url}{name} ({reason}); "
            "set data.root=FOLDER to a folder with the files, or try again"
        ) from error


def find_multi30k(language: str, split: str, root: Path) -> Path:
    """Return the path of one side of one split in a folder the user has, packed or not.

    Raises:
        InputError: the corpus has no such language, or the folder has no such file.
    """
    name = _name(language, split)
    for path in (root / name, root / name.removesuffix(".gz")):
        if path.is_file():
            return path
    problem = f"has no {name}" if root.is_dir() else f"is no folder (seen from {Path.cwd()})"
    raise InputError(f"{root} {problem}; set data.root to the folder of {', '.join(SHA256)}")


def _name(language: str, split: str) -> str:
    if language not in LANGUAGES:
        raise InputError(
            f"multi30k has no language {language!r}; set data.source and data.target to two of "
            + ", ".join(LANGUAGES)
        )
    return f"{SPLITS[split]}.{language}.gz"
