"""What a report says of a run directory, without training."""

import csv
import shutil
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from pytorch_lightning import LightningModule, Trainer

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.runs import composed
from transformer.common.errors import InputError, Interrupted
from transformer.evaluation.metrics import Score, score
from transformer.reports.scores import save_report
from transformer.runs.callbacks import RunReport
from transformer.runs.directory import read_record
from transformer.runs.report import run_report, write_report
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig, plain_values

SCORES = [(10, 20.0, 3.0), (20, 30.0, 2.0), (30, 30.0, 2.5), (40, 25.0, float("nan"))]


def run_directory(folder: Path, **overrides: str) -> RunConfig:
    """A run of four validations with its text, and no test."""
    folder.mkdir()
    files = {
        f"data.{split}": f"[{','.join(write_parallel(folder, split, count, 1, list))}]"
        for split, count in (("train", 60), ("validation", 5), ("test", 30))
    }
    keys = {"data": "files", "data.source": "a", "data.target": "b", **files, **overrides}
    config = composed([f"{key}={value}" for key, value in keys.items()], folder / "cache")
    (folder / "config.yaml").write_text(yaml.safe_dump(plain_values(config)))
    with open(folder / "metrics.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "val/bleu", "val/loss", "train/loss"])
        writer.writerows([update - 1, bleu, loss, ""] for update, bleu, loss in SCORES)
        writer.writerow([44, "", "", "", "damaged"])
    return config


def test_the_chosen_checkpoint_is_the_best_with_the_lowest_loss(tmp_path: Path) -> None:
    run_directory(tmp_path / "run")
    values = run_report([tmp_path / "run"])
    [run] = values["runs"]
    assert run["validation"]["best_update"] == 20
    assert run["curves"]["val/loss"] == [(10, 3.0), (20, 2.0), (30, 2.5)]
    assert "train/loss" not in run["curves"]
    assert values["summary"][0] == "No test is scored; the best val/bleu is 30, at update 20."
    assert values["summary"][1] == "The run was stopped."
    page = write_report(tmp_path, values).read_text()
    assert "has no run.json" in page


def test_a_fine_tuned_run_begins_with_the_score_of_the_original_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for keys, updates in (({}, [1, 1, 2]), ({"finetune_from": "x"}, [0, 1, 2])):
        shutil.rmtree(run, ignore_errors=True)
        run_directory(run, **keys)
        rows = ["0,20.0,1.0,", "0,15.0,,", "0,,,4.0", "1,10.0,2.0,"]
        (run / "metrics.csv").write_text("\n".join(["step,val/bleu,val/loss,train/loss", *rows]))
        values = run_report([run])
        [facts] = values["runs"]
        assert [update for update, _ in facts["curves"]["val/bleu"]] == updates
        assert facts["curves"]["train/loss"] == [(1, 4.0)]
    assert values["summary"][0] == "No test is scored; the best val/bleu is 20, at update 0."


def test_scores_that_the_text_no_longer_gives_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_directory(run)
    lines = (run / "test.tgt").read_text().split("\n")[:-1]
    # A vocabulary of bytes may write a carriage return, which ends no line.
    hypotheses = [line if number % 3 else "no\rthing" for number, line in enumerate(lines)]
    scores = score(hypotheses, lines, config=MetricsConfig())
    save_report(run, "test", scores, hypotheses)
    values = run_report([run])
    [test] = values["tests"]
    bleu = test["comparison"]["metrics"][0]["systems"][0]
    assert bleu["score"] == pytest.approx(scores[0].value)
    assert bleu["interval"] > 0
    assert values["notes"] == []
    assert test["comparison"]["by_frequency"] is not None
    worst = [row["line"] for row in test["sentences"]][:10]
    assert sorted(worst) == [*range(1, 31, 3)]
    # A damaged line of the training text costs the words alone.
    with open(run / "train.tgt", "ab") as file:
        file.write(b"one more, without its source\n")
    values = run_report([run])
    assert "no words by frequency" in values["notes"][0]
    assert values["tests"][0]["comparison"]["by_frequency"] is None
    assert len(values["tests"][0]["sentences"]) == 30
    # Another text under the same name.
    (run / "test.tgt").write_text("".join(f"{line} x\n" for line in lines))
    notes = " ".join(run_report([run])["notes"])
    assert f"test: BLEU was {scores[0].value:.2f}, and is now" in notes
    (run / "test.tgt").unlink()
    values = run_report([run])
    assert "neither intervals nor sentences" in values["notes"][0]
    assert values["summary"][0] == f"On test, BLEU is {round(scores[0].value, 2)}."


def test_runs_with_other_settings_and_no_common_test(tmp_path: Path) -> None:
    for name, rate in (("one", "1e-3"), ("two", "2e-3")):
        run_directory(tmp_path / name, **{"optimizer.lr": rate, "task": "tagging"})
    save_report(tmp_path / "one", "test", [Score.of("accuracy", 90.0, "words:10")], ["NOUN"] * 30)
    values = run_report([tmp_path / "one"])
    assert values["summary"][0] == "On test, accuracy is 90.0."
    # Tags are no translations.
    assert (values["notes"], values["tests"][0]["comparison"]) == ([], None)
    assert values["runs"][0]["about"] == "tagging, corpus files"
    values = run_report([tmp_path / "one", tmp_path / "two"])
    changed = {setting["key"]: setting["values"] for setting in values["settings"]}
    assert changed["optimizer.lr"] == [0.001, 0.002]
    assert values["summary"] == ["The runs have no test in common."]
    assert write_report(tmp_path, values).name == "comparison.html"


def test_a_stopped_run_says_so_and_a_report_never_ends_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    config = run_directory(run, report="live")
    trainer = Mock(spec=Trainer, is_global_zero=True)
    with pytest.raises(Interrupted), RunReport(config, run) as report:
        report.changed = True
        report.on_validation_end(trainer, Mock(spec=LightningModule))
        page = (run / "report.html").read_text()
        assert 'http-equiv="refresh"' in page
        assert "is still training" in page
        raise Interrupted("stopped by SIGTERM; go on")
    page = (run / "report.html").read_text()
    assert 'http-equiv="refresh"' not in page
    assert "The run was stopped" in page
    (run / "config.yaml").unlink()
    with RunReport(config, run) as report:
        report.changed = True
    assert "transformer report" in caplog.text
    with pytest.raises(InputError, match=r"has no config\.yaml"):
        run_report([run])


def test_the_record_has_every_start_and_ends_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Mock(spec=Trainer, global_step=7, world_size=1, is_global_zero=True)
    trainer.strategy = Mock(root_device=Mock(type="cpu"))
    trainer.datamodule = Mock(lengths=dict)
    trainer.datamodule.tokenizer = Mock(source_vocab_size=5, target_vocab_size=6)
    trainer.lightning_module = Mock(parameters=list)
    config, module = RunConfig(report="none"), Mock(spec=LightningModule)
    for error in (KeyboardInterrupt(), InputError("no memory")):
        with pytest.raises(type(error)), RunReport(config, tmp_path) as report:
            for _ in range(2):  # again after a divergence
                report.on_train_start(trainer, module)
            raise error
    record = read_record(tmp_path)
    assert [start["reason"] for start in record["starts"]] == ["KeyboardInterrupt", "no memory"]
    assert record["vocabulary"] == {"source": 5, "target": 6}
    assert record["starts"][0]["from_update"] == 7
    assert record["starts"][0]["versions"]["torch"]
    # As in a clone that is not installed.
    with monkeypatch.context() as patch, RunReport(config, tmp_path) as report:
        patch.setattr(
            "transformer.runs.directory.version", Mock(side_effect=PackageNotFoundError("x"))
        )
        report.on_train_start(trainer, module)
    assert "run.json is not written" in caplog.text
    assert read_record(tmp_path) == record
    with RunReport(config, tmp_path) as report:
        report.on_train_start(trainer, module)
        (tmp_path / "run.json").unlink()
    assert read_record(tmp_path) == {"starts": []}
