"""Wrong calls of translate are one line."""

import pytest

from transformer.cli.translate.translate import main


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("attention=true", "attention=true needs format=json"),
        ("alignment=3", "alignment=3 must be true or false"),
        ("format=xml", "format=xml is unknown; choose text or json"),
        ("format=json", "checkpoint=x does not exist; give a run directory"),
    ],
)
def test_refusals(argument: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint=x", argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")
