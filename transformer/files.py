"""Files as users name them; it does not know what is in them."""

from pathlib import Path

from transformer.errors import InputError


def given_path(name: str | Path) -> Path:
    """A path that the user names, with ``~`` as a shell reads it.

    Raises:
        InputError: There is no such user.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise InputError(f"{name}: there is no such home folder; write the whole path") from error
