"""``make check`` runs the tests of what has changed."""

import pytest

from scripts.changed_tests import PAGES, related_tests


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("transformer/training/losses/cross_entropy.py", "losses/test_cross_entropy.py"),
        ("transformer/training/losses/__init__.py", "tests/unit/training/losses"),
        ("tests/parity/test_search.py", "tests/parity/test_search.py"),
        ("conf/decoding/beam.yaml", "tests/regression/test_configs.py"),
        ("docs/data.md", PAGES[0]),
    ],
)
def test_a_file_has_its_tests(changed: str, tests: str) -> None:
    assert related_tests(changed)[0].endswith(tests)


def test_what_is_gone_or_of_no_test_has_none() -> None:
    assert related_tests("tests/unit/test_gone.py") == related_tests("constraints.txt") == []
