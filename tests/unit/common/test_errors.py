"""How to install what is missing."""

from importlib import metadata
from importlib.metadata import PackageNotFoundError

import pytest

from transformer.common import errors
from transformer.common.errors import MissingPackage, require_package

REQUIRES = ["torch>=2.11", "python-multipart>=0.0.20; extra == 'serve'", 'x>1; extra == "other"']


def test_a_missing_package_is_named_as_pip_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)
    monkeypatch.setattr(metadata, "distribution", distribution)
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage) as error:
        require_package("multipart", "serve", "serve")
    # The extra alone would not do: the project is not on PyPI.
    assert str(error.value) == (
        "serve needs python-multipart: pip install 'python-multipart>=0.0.20', or "
        "pip install -e '.[serve]' in the checkout"
    )
