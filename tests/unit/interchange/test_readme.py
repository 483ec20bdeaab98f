"""The model card of an export, and its program."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from tests.helpers.decoding.translators import save_translator, tiny_tokenizer, tiny_translator
from transformer.commands.report import report
from transformer.data.tokenization.tags import Tags
from transformer.interchange.readme import Published, model_card, read_report
from transformer.settings.commands import ReportConfig
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig, plain_values

RUN = RunConfig(data=DataConfig("files", "en", "de"))
SCORES = [
    {"name": "BLEU", "score": 41.0, "signature": "nrefs:1|case:mixed", "verbose_score": "…"},
    {"name": "chrF2", "score": 62.5, "signature": "nrefs:1|nc:6"},
    {"name": "squad_f1", "score": 9.5, "signature": "nrefs:1"},
]


def test_the_program_of_a_card_has_the_tokenizer_of_its_architecture() -> None:
    model = replace(RUN.model, positions="relative", norm="rms", biases=False, scale_scores=False)
    text = model_card(
        tiny_tokenizer(), replace(RUN, model=model), {}, "transformers", Published("mit")
    )
    assert "AutoTokenizer.from_pretrained" in text and "Marian" not in text


@pytest.mark.parametrize(
    ("library", "tags", "line"),
    [
        ("transformer", Tags(), '"user/model"))'),
        ("transformer", Tags(targets=("fr", "de")), '"user/model", to="de"))'),
        ("transformer", Tags(targets=("fr", "it")), '"user/model", to="fr"))'),
        (
            "transformer",
            Tags(targets=("de", "en"), both_sides=True, corpora=("web",), optional=False),
            '"user/model", from_="en", to="de", tag="web"))',
        ),
        ("transformers", Tags(), '(["…"],'),
        ("transformers", Tags(targets=("de", "fr")), '([">>de<< …"],'),
    ],
)
def test_the_program_of_a_card_names_the_tags_of_the_model(
    library: str, tags: Tags, line: str
) -> None:
    tokenizer = tiny_tokenizer().with_tags(tags)
    text = model_card(tokenizer, RUN, {}, library, Published("mit", "user/model"))
    [program] = re.findall(r"```python\n(.*?)```", text, re.S)
    assert line in program


@pytest.mark.parametrize("tuned", ["before", "after"])
def test_a_model_card_has_the_scores_of_its_checkpoint(tuned: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ("best", "tuned"):
        (tmp_path / "checkpoints" / f"{name}.ckpt").touch()
    (tmp_path / "test.json").write_text(json.dumps(SCORES))
    (tmp_path / "test_two.failures.json").write_text('{"sentences": 1, "flags": {}}')
    comparison = {"metrics": [{"name": "BLEU", "systems": [{"mean": 41.0, "interval": 1.5}]}]}
    # Those of before the tuning have other scores.
    scores = [SCORES] if tuned == "before" else [SCORES[1:]]
    test = {"name": "test", "scores": scores, "comparison": comparison}
    (tmp_path / "report.json").write_text(json.dumps({"tests": [test]}))
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
    assert "MarianTokenizer.from_pretrained" in text
    assert card.base_model == "ann/base" and "from the weights of `ann/base`" in text
    assert "someone" not in text
    interval = "39.50 to 42.50" if tuned == "before" else ""
    assert f"| test | BLEU | 41.0 | {interval} |" in text
    assert ("Measured before `transformer tune`" in text) is (tuned == "after")
    if tuned == "after":  # its scores are others
        assert card.eval_results is None
        return
    assert card.metrics == ["bleu", "chrf", "squad"]
    assert [
        (result.metric_type, result.metric_value, result.metric_args["signature"])
        for result in card.eval_results or ()
    ] == [
        ("bleu", 41.0, "nrefs:1|case:mixed"),
        ("chrf", 62.5, "nrefs:1|nc:6"),
        ("squad", 9.5, "nrefs:1"),
    ]


def test_the_program_of_a_runs_card_loads_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints").mkdir()
    translator = tiny_translator()
    save_translator(translator, tmp_path / "checkpoints" / "best.ckpt")
    run = RunConfig(data=DataConfig("files", "en", "de"))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(plain_values(run)))
    card = report(ReportConfig([tmp_path], format="card")).read_text("utf-8")
    assert ModelCard(card).data.library_name == "transformer"
    [program] = re.findall(r"```python\n(.*?)```", card, re.S)
    monkeypatch.chdir(tmp_path)
    exec(program.replace("…", "the dog runs"), {})
    assert capsys.readouterr().out == f"{translator.translate(['the dog runs'])[0].text}\n"


def test_a_card_names_the_text_but_no_folder_above_it() -> None:
    for data, text in (
        (DataConfig("pocket"), "on the corpus `pocket`."),
        (DataConfig("folder", root="/home/me/texts"), "on the files of `texts`."),
        (DataConfig("files", "en", "de", train="/home/me/train.tsv"), "on `train.tsv`."),
    ):
        run = RunConfig(data=data)
        card = model_card(tiny_tokenizer(), run, {}, "transformer", Published("mit"))
        assert f"It was trained {text}" in card
        assert "/home" not in card


@pytest.mark.parametrize(
    ("languages", "task"),
    [
        (("eng_Latn", "de"), "translation"),
        # One language, and no language.
        (("de", "de"), "text2text-generation"),
        (("words", "phonemes"), "text2text-generation"),
    ],
)
def test_only_two_languages_are_a_translation(languages: tuple[str, str], task: str) -> None:
    run = replace(RUN, data=DataConfig("files", *languages))
    card = ModelCard(model_card(tiny_tokenizer(), run, {}, "transformer", Published("mit")))
    assert card.data.tags == [task]
