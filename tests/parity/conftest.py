"""Parity with other programs, whose models are random here."""

import math

import pytest

from transformer.decoding.search import beam


@pytest.fixture(autouse=True)
def searches_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """All searches of a random model are hopeless; they are compared to their end all the same."""
    monkeypatch.setattr(beam, "HOPELESS_BELOW", -math.inf)
