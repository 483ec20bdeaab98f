"""Models of the Hugging Face Hub: the names that mean one, and the local run that each becomes.

The client reads HF_HOME, HF_HUB_OFFLINE, HF_ENDPOINT and HF_TOKEN.
"""

import os
import re
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from transformer.common.errors import InputError, MissingFile, how_to_install
from transformer.common.files import given_path

SCHEME = "hf://"
_NAME = re.compile(r"(?:hf://)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_FILES = ["*.json", "*.safetensors", "pytorch_model.bin", "*.spm", "*.model"]


def hub_run(name: str) -> Path:
    """The run in the cache that a model of the Hub becomes; raises as ``download`` does."""
    # By its name, as the folders import one way.
    found: Path = resolve_name("transformer.cli.import_model:hub_run")(name)
    return found


def local_checkpoints(value: Any) -> Any:
    """A value of ``checkpoint``, with the run of each model of the Hub in place of its name."""
    if isinstance(value, list):
        return list(map(local_checkpoints, value))
    return str(hub_run(value)) if str(value).startswith(SCHEME) else value


def local_path(path: str | os.PathLike[str]) -> Path:
    """A path or, if neither it nor its folder exists, the run of the model ``USER/MODEL``."""
    name = os.fspath(path)
    if name.startswith(SCHEME):
        return hub_run(name)
    local = given_path(name)
    if local.exists() or local.parent.exists() or not _NAME.fullmatch(name):
        return local
    try:
        return hub_run(name)
    except MissingFile:
        return local


def repository(name: str) -> tuple[str, str | None]:
    """``USER/MODEL`` and the revision of ``hf://USER/MODEL@REVISION``; raises InputError."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"{name} is no model of the Hub; write {SCHEME}USER/MODEL[@REVISION]")
    if find_spec("huggingface_hub") is None:
        raise InputError(f"{name} needs huggingface_hub: {how_to_install('huggingface')}")
    return match[1], match[2]


def download(name: str) -> Path:
    """The files of a model in the cache of huggingface_hub, in a folder named by their commit.

    Raises:
        MissingFile: The Hub has no such model or revision.
        InputError: It cannot be reached, or the name is none.
    """
    repo, revision = repository(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=_FILES))
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        advice = "check the name, or set HF_TOKEN"
        raise MissingFile(f"{name} is not on the Hub, or private; {advice}") from error
    except Exception as error:  # The client lets the errors of several libraries through.
        raise hub_error(name, error) from error


def hub_error(name: str, error: Exception) -> InputError:
    """An error of the client in one line."""
    # Where the cache could not help, the cause has failed before.
    reason = " ".join(str(error.__cause__ or error).split())
    return InputError(f"{name}: the Hub cannot be asked: {reason[:300] or repr(error)}")
