"""Models of the Hugging Face Hub, whose client reads HF_HOME, HF_HUB_OFFLINE and HF_TOKEN."""

import re
from pathlib import Path

from transformer.common.errors import InputError, MissingFile
from transformer.common.files import HUB, given_path
from transformer.common.packages import require_package

_NAME = re.compile(r"(?:hf://)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_CACHED = re.compile(r".*/([\w.-]+)--([\w.-]+)/[0-9a-f]{40}/run", re.ASCII)
_FILES = ["*.json", "model*.safetensors", "pytorch_model*.bin", "*.spm", "*.model", "merges.txt"]


def repository(name: str) -> tuple[str, str | None]:
    """``USER/MODEL`` and the revision of ``hf://USER/MODEL@REVISION``; raises MissingFile."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise MissingFile(f"{name} is no model of the Hub; write {HUB}USER/MODEL[@REVISION]")
    require_package("huggingface_hub", name, "huggingface")
    return match[1], match[2]


def is_hub_name(name: str) -> bool:
    """Whether it is ``hf://USER/MODEL``, or USER/MODEL where neither it nor its folder exists."""
    path = given_path(name)
    is_path = path.exists() or path.parent.exists()
    return name.startswith(HUB) or (not is_path and _NAME.fullmatch(name) is not None)


def download(name: str) -> Path:
    """The files of a model in the cache of huggingface_hub; MissingFile for an unknown model."""
    repo, revision = repository(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=_FILES))
    except Exception as error:  # The client lets the errors of several libraries through.
        missing = isinstance(error, RepositoryNotFoundError | RevisionNotFoundError)
        advice = f"{name} is not on the Hub, or private; check the name, or set HF_TOKEN"
        raise MissingFile(advice) if missing else hub_error(name, error) from error


def cached_model(run: str) -> str | None:
    """``USER/MODEL`` that ``import`` has made this run of in the cache."""
    match = _CACHED.fullmatch(run)
    return match and f"{match[1]}/{match[2]}"


def hub_error(name: str, error: Exception) -> InputError:
    """An error of the client in one line."""
    # The cause is the error before the look into the cache.
    reason = " ".join(str(error.__cause__ or error).split())
    return InputError(f"{name}: the Hub cannot be asked: {reason[:300] or repr(error)}")
