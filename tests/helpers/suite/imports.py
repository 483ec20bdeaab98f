"""Lightning is imported without the packages that only metrics of torchmetrics use."""

from lightning_utilities.core import imports
from lightning_utilities.core.imports import RequirementCache

UNUSED = {"matplotlib", "scipy", "transformers"}
"""For metrics of sound, of images and of other models: a third of the time that Lightning takes."""

_is_there, _find = RequirementCache.__bool__, imports.package_available


def hide_unused_packages() -> None:
    """Let Lightning find none of them; tests and the package import what they use themselves."""
    RequirementCache.__bool__ = _is_used  # type: ignore[method-assign]
    imports.package_available = _found


def _is_used(package: RequirementCache) -> bool:
    return str(package.requirement).partition(">=")[0] not in UNUSED and _is_there(package)


def _found(name: str) -> bool:
    return name not in UNUSED and _find(name)
