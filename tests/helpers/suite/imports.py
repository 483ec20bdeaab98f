"""Imports Lightning without the packages that only metrics of torchmetrics use."""

from unittest.mock import patch

from lightning_utilities.core import imports
from lightning_utilities.core.imports import RequirementCache

UNUSED = {"matplotlib", "scipy", "transformers"}
"""For metrics of sound, of images and of other models: a third of the time that Lightning takes."""


def import_lightning() -> None:
    """Import it; tests and the package import what they use of those themselves."""
    is_there, find = RequirementCache.__bool__, imports.package_available

    def is_used(package: RequirementCache) -> bool:
        return str(package.requirement).partition(">=")[0] not in UNUSED and is_there(package)

    def found(name: str) -> bool:
        return name not in UNUSED and find(name)

    with (
        patch.object(RequirementCache, "__bool__", is_used),
        patch.object(imports, "package_available", found),
    ):
        import pytorch_lightning  # noqa: F401
