"""The model card of an export, and its program."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.data.tokenization.tags import Tags
from transformer.interchange.readme import Published, model_card, read_report
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig

RUN = RunConfig(data=DataConfig("files", "en", "de"))
SCORES = [
    {"name": "BLEU", "score": 41.0, "signature": "nrefs:1|case:mixed", "verbose_score": "…"},
    {"name": "chrF2", "score": 62.5, "signature": "nrefs:1|nc:6"},
    {"name": "squad_f1", "score": 9.5, "signature": "nrefs:1"},
]


def test_a_card_has_no_interval_of_former_scores(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.ckpt").touch()
    (tmp_path / "test.json").write_text(json.dumps(SCORES))
    (tmp_path / "test_two.failures.json").write_text('{"sentences": 1, "flags": {}}')
    system = {"mean": 41.0, "interval": 1.5}
    comparison = {"metrics": [{"name": "BLEU", "systems": [system]}]}
    test = {"name": "test", "scores": [SCORES], "comparison": comparison}
    about = Published("mit")
    for values, interval in (
        ({"tests": [test]}, "39.50 to 42.50"),
        ({"tests": [test | {"scores": [SCORES[1:]]}]}, ""),
        (None, ""),
    ):
        (tmp_path / "report.json").write_text(json.dumps(values) if values else "{")
        text = model_card(tiny_tokenizer(), RUN, read_report(tmp_path), "transformer", about)
        assert f"| test | BLEU | 41.0 | {interval} |" in text


@pytest.mark.parametrize("tuned", ["", "before", "after"])
def test_a_model_card_has_the_scores_of_its_checkpoint(tuned: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ["best", *["tuned"] * bool(tuned)]:
        (tmp_path / "checkpoints" / f"{name}.ckpt").touch()
    (tmp_path / "test.json").write_text(json.dumps(SCORES))
    if tuned == "after":  # the test
        os.utime(tmp_path / "checkpoints" / "tuned.ckpt", (4e9, 4e9))
    data = replace(RUN.data, train=("/home/someone/own.en", "/home/someone/own.de"))
    base = Path(f"/home/someone/hub/ann--base/{'a1' * 20}/run")
    text = model_card(
        tiny_tokenizer().with_tags(Tags(targets=("de", "fr"))),
        replace(RUN, data=data, finetune_from=base),
        read_report(tmp_path),
        "transformers",
        Published("apache-2.0", "user/model"),
    )
    card = ModelCard(text).data
    assert (card.language, card.license) == (["en", "de", "fr"], "apache-2.0")
    assert (card.library_name, card.pipeline_tag) == ("transformers", "translation")
    assert "`own.en`, `own.de`" in text
    assert card.base_model == "ann/base" and "from the weights of `ann/base`" in text
    assert "someone" not in text
    assert "| test | BLEU | 41.0 |" in text
    assert ("Measured before `transformer tune`" in text) is (tuned == "after")
    if tuned == "after":  # its scores are others
        assert card.eval_results is None
        return
    assert card.metrics == ["bleu", "chrf", "squad"]
    assert [
        (one.metric_type, one.metric_value, one.metric_args["signature"], one.dataset_split)
        for one in card.eval_results or ()
    ] == [
        ("bleu", 41.0, "nrefs:1|case:mixed", "test"),
        ("chrf", 62.5, "nrefs:1|nc:6", "test"),
        ("squad", 9.5, "nrefs:1", "test"),
    ]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (DataConfig("pocket"), "on the corpus `pocket`."),
        (DataConfig("folder", root="/home/me/texts"), "on the files of `texts`."),
        (DataConfig("files", "en", "de", train="/home/me/train.tsv"), "on `train.tsv`."),
    ],
)
def test_a_card_names_the_text_but_no_folder_above_it(data: DataConfig, says: str) -> None:
    tokenizer = tiny_tokenizer()
    card = model_card(tokenizer, RunConfig(data=data), {}, "transformer", Published("mit"))
    assert f"It was trained {says}" in card
    assert "/home" not in card
