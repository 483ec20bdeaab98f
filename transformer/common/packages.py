"""Packages of the extras: whether they are installed, and how to install them."""

import re
import shlex
from contextlib import suppress
from importlib.util import find_spec

from transformer.common.errors import InputError

_DISTRIBUTIONS = {
    "PIL": "Pillow",
    "multipart": "python-multipart",
    "prometheus_client": "prometheus-client",
}
"""Packages that pip knows by another name than ``import``."""


class MissingPackage(InputError):
    """A package of an extra is not installed."""


def how_to_install(extra: str) -> str:
    """Return the commands that install what is missing of an extra, from a wheel and a checkout.

    The project is not on PyPI, so that an extra can be named in a checkout alone.
    """
    checkout = f"pip install -e '.[{extra}]' in the checkout"
    missing = _missing_requirements(extra)
    return f"{shlex.join(['pip', 'install', *missing])}, or {checkout}" if missing else checkout


def _missing_requirements(extra: str) -> list[str]:
    """The requirements of an extra that are not installed, such as ``lxml>=6.0``."""
    # Reading metadata is for errors alone: its import would slow every start.
    from importlib.metadata import PackageNotFoundError, distribution, requires

    missing = []
    with suppress(PackageNotFoundError):
        for requirement in requires("transformer") or ():
            wanted, _, marker = requirement.partition(";")
            if re.search(rf"extra == ['\"]{extra}['\"]", marker):
                try:
                    distribution(re.split(r"[^\w.-]", wanted)[0])
                except PackageNotFoundError:
                    missing.append(wanted.strip())
    return missing


def require_package(package: str, who: str, extra: str) -> None:
    """Raise MissingPackage unless a package of an extra is installed."""
    if find_spec(package) is None:
        name = _DISTRIBUTIONS.get(package, package)
        raise MissingPackage(f"{who} needs {name}: {how_to_install(extra)}")
