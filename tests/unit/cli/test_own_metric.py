"""A metric that is code runs if the command names it, and never because a checkpoint does."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.tuning_runs import PAIRS, write_run
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, read_payload, write_payload
from transformer.checkpoint.trust import TRUST

OWN = """
from pathlib import Path

Path("imported").touch()


def blanks(hypotheses, references):
    return [text.count(" ") + len(right) for text, right in zip(hypotheses, references)]
"""


@pytest.mark.thorough
def test_code_that_a_checkpoint_names_wants_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(TRUST)
    (tmp_path / "own_metric_of_a_test.py").write_text(OWN)
    for side, lines in enumerate(zip(*PAIRS, strict=True)):
        Path(f"text.{side}").write_text("".join(f"{line}\n" for line in lines))
    file = write_run(tmp_path) / "checkpoints" / "best.ckpt"
    payload = read_payload(file)
    data = payload[PORTABLE]["config"]["data"]
    data["validation"] = [Path(name).name for name in data["validation"]]
    own, metrics = "own_metric_of_a_test:blanks", payload[PORTABLE]["config"]["metrics"]
    metrics |= {"custom": own, "custom_better": "lower", "choose": "custom"}
    write_payload(payload, file)
    text = ["source=text.0", "reference=text.1"]
    few = ["bootstrap=20", "randomization=20"]
    calls = {
        "evaluate": ["checkpoint=run/checkpoints/best.ckpt", *text],
        "compare": ["run/checkpoints/best.ckpt", "text.1", *text, "training=false", *few],
        "tune": ["checkpoint=run/checkpoints/best.ckpt", "beam_sizes=[1]"],
        "heads": ["checkpoint=run/checkpoints/best.ckpt", "metric=custom", "sentences=1"],
        "export": ["checkpoint=run/checkpoints/best.ckpt", "output=exported"],
    }
    for verb, arguments in calls.items():
        assert main([verb, *arguments]) == 2, verb
        printed = capsys.readouterr()
        # These verbs have no key data.root=.
        assert (
            f"metrics.custom={own}: text outside of this folder, or code; add trust=" in printed.err
        )
        assert not printed.out
    assert not Path("imported").exists()
    assert main(["evaluate", *calls["evaluate"], f"metrics={own}", "scores=[custom]"]) == 0
    assert Path("imported").exists()
    [found] = json.loads(capsys.readouterr().out)
    assert found["name"] == "custom" and found["function"] == own.replace(":", ".")
    for verb in ("compare", "tune"):
        assert main([verb, *calls[verb], f"metrics={own}"]) == 0, verb
        assert "custom" in capsys.readouterr().out
    assert main(["tune", *calls["tune"], "metrics=nowhere.at_all:x", "trust=true"]) == 2
    assert (
        "nowhere.at_all:x cannot be imported (No module named 'nowhere')" in capsys.readouterr().err
    )
    del calls["export"]
    for verb, arguments in calls.items():
        assert main([verb, *arguments, "trust=true"]) == 0, verb
