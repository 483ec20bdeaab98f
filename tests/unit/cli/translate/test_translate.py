"""Wrong calls of translate are one line."""

from pathlib import Path

import pytest

from tests.unit.cli.test_load import RUN, written
from transformer.cli.translate.translate import main


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("attention=true", "attention=true needs format=json"),
        ("format=xml", "format=xml is unknown; choose text or json"),
        ("alignment_threshold=0.5", "alignment_threshold=0.5 does nothing alone; set alignment=tr"),
        ("format=json", "checkpoint=x does not exist; give a run directory"),
    ],
)
def test_refusals(argument: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint=x", argument]) == 2
    assert capsys.readouterr().err.startswith(f"error: {says}")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (["decoding.nbest=3"], True),
        (["decoding=diverse", "decoding.nbest=3"], True),
        (["decoding.nbest=1"], False),
        (["decoding.nbest=3", "format=json"], False),
        # The best of so many samples.
        (["decoding=sampling", "decoding.nbest=3"], False),
        # As many as the choice says, where the call says nothing of them.
        (["decoding=diverse"], False),
    ],
)
def test_an_nbest_list_that_nobody_would_see_is_refused(
    arguments: list[str], refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = written(tmp_path / "x.ckpt", RUN)
    (tmp_path / "in").write_text("")
    files = [f"input={tmp_path / 'in'}", f"output={tmp_path / 'out'}"]
    assert main([f"checkpoint={checkpoint}", *files, *arguments]) == (2 if refused else 0)
    assert (
        "the best is taken alone, and the others shown nowhere; set format=json"
        in capsys.readouterr().err
    ) == refused
