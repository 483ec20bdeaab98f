"""What the tests of chain and manifest begin with."""

from pathlib import Path

import pytest

from tests.helpers.copies import Copies


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    return Copies(tmp_path)
