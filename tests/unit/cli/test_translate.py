"""Wrong calls of translate are one line, before anything is loaded."""

import pytest

from transformer.cli.translate import main


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("decoding.nbest=3", "decoding.nbest=3: a line of text is the best alone; set format=json"),
        ("attention=true", "attention=true needs format=json"),
        ("format=xml", "format=xml is unknown; choose text or json"),
        ("alignment_threshold=0.5", "alignment_threshold=0.5 does nothing alone; set alignment=tr"),
        ("format=json", "checkpoint=x does not exist; give a run directory"),
        ("decoding.nbest=1", "checkpoint=x does not exist; give a run directory"),
    ],
)
def test_refusals(argument: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint=x", argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")
