"""What README.md of an export says is enough to translate with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.interchange.outside import called_outside, translated_outside
from tests.helpers.model.models import tiny_transformer
from transformer.data.tokenization.tags import SourceTags, Tags
from transformer.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from transformer.decoding.translation.translator import Translator
from transformer.interchange.ctranslate2 import write_ctranslate2
from transformer.interchange.readme import ctranslate2_readme, model_card, read_report
from transformer.interchange.safetensors import write_settings

from .test_ctranslate2_engine import TEXTS, let_end

NASTY = ["", "  ", "\u2581 a  \u2581 dog", "a\tdog", "cafe\u0301\u00a0dog", "\u4f60 <s> < > <2 de>"]


def translator_of(tokenizer: Tokenizer, **search: Any) -> Translator:
    """A random model of that vocabulary, whose translations end if it is searched by a beam."""
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        tie_embeddings="none",
    )
    with torch.no_grad():
        model.projection.weight.mul_(2)
    if search["algorithm"] == "beam":
        let_end(model)
    return Translator(model, tokenizer, search_config(stopping="full", **search), 200)


def write(translator: Translator, folder: Path, most: int) -> None:
    """Write an export, and the README.md of a model that reads at most so many subwords."""
    tokenizer = translator.tokenizer
    write_ctranslate2(translator.model, tokenizer, folder)
    write_settings(translator.model.config, tokenizer, {}, folder / "transformer.json")
    text = ctranslate2_readme(tokenizer, translator.search, most)
    (folder / "README.md").write_text(text, encoding="utf-8")


GREEDY = {"algorithm": "greedy", "beam_size": 1, "max_length_offset": 16, "max_length_ratio": 0.0}
SEPARATE = TokenizerConfig("bpe", 310, False, 0.0, 1.0, 1000)


@pytest.mark.parametrize(
    ("tokenizer", "search"),
    [
        (tiny_tokenizer, {"algorithm": "beam", "beam_size": 4, "length_penalty": 0.6}),
        (tiny_tokenizer, {"algorithm": "beam", "beam_size": 3, "length_penalty_form": "average"}),
        (lambda: Tokenizer.train(SEPARATE, lambda: PAIRS), GREEDY),
        (lambda: tiny_tokenizer().with_tags(Tags(targets=("de", "fr"))), GREEDY),
        (lambda: tiny_tokenizer().with_tags(Tags(corpora=("web",), optional=False)), GREEDY),
        (lambda: tiny_tokenizer().with_tags(Tags(sentences=2, subwords=60)), GREEDY),
    ],
    ids=["beam", "average", "separate", "target", "corpus", "documents"],
)
def test_its_program_translates_alike(
    tokenizer: Callable[[], Tokenizer], search: dict[str, Any], tmp_path: Path
) -> None:
    found = tokenizer()
    ours = translator_of(found, **search)
    write(ours, tmp_path, 63)
    names = found.tags.targets, found.tags.corpora
    ours.tokenizer = found.tagged(SourceTags(*(next(iter(some), None) for some in names)))
    # Where a beam of random weights goes on for long, rounding decides.
    texts = [*TEXTS, *NASTY] if search is GREEDY else TEXTS
    expected = [translation.text for translation in ours.translate(texts)]
    assert translated_outside(tmp_path, texts) == expected
    assert len(set(expected)) > 3


def test_a_line_that_the_model_cannot_read_is_named(tmp_path: Path) -> None:
    tokenizer, long = tiny_tokenizer(), "a " * 20
    ours = translator_of(tokenizer, **GREEDY)
    write(ours, tmp_path, 9)
    done = called_outside(tmp_path, ["a dog", long])
    subwords = len(tokenizer.encode_source([long])[0])
    says = f"line 2 has {subwords} pieces, and the model reads at most 9; cut it\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", says)


def test_it_names_the_tags() -> None:
    tokenizer = tiny_tokenizer().with_tags(Tags(targets=("de", "fr"), sentences=3, subwords=50))
    text = ctranslate2_readme(tokenizer, search_config(), 63)
    assert "begins with its tags, here ['<2 de>']. There are `< >`, `<2 de>`, `<2 fr>`." in text
    assert "between sentences, which are cut alone, stands `< >`" in text


RUN = {"data": {"source": "en", "target": "de", "corpus": "files", "corpora": None}}
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
    about = {"license": "mit"}
    for values, interval in (
        ({"tests": [test]}, "39.50 to 42.50"),
        ({"tests": [test | {"scores": [SCORES[1:]]}]}, ""),
        (None, ""),
    ):
        (tmp_path / "report.json").write_text(json.dumps(values) if values else "{")
        text = model_card(tiny_tokenizer(), RUN, read_report(tmp_path), "transformer", about)
        assert f"| test | BLEU | 41.0 | {interval} |" in text


@pytest.mark.parametrize("tuned", [False, True])
def test_a_model_card_has_the_scores_of_its_checkpoint(tuned: bool, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in ["best", *["tuned"] * tuned]:
        (tmp_path / "checkpoints" / f"{name}.ckpt").touch()
    (tmp_path / "test.json").write_text(json.dumps(SCORES))
    data = RUN["data"] | {"train": ["/home/someone/own.en", "/home/someone/own.de"]}
    text = model_card(
        tiny_tokenizer().with_tags(Tags(targets=("de", "fr"))),
        RUN | {"data": data, "finetune_from": f"/home/someone/hub/ann--base/{'a1' * 20}/run"},
        read_report(tmp_path),
        "transformers",
        {"license": "apache-2.0", "repo": "user/model"},
    )
    card = ModelCard(text).data
    assert (card.language, card.license) == (["en", "de", "fr"], "apache-2.0")
    assert (card.library_name, card.pipeline_tag) == ("transformers", "translation")
    assert "`own.en`, `own.de`" in text
    assert card.base_model == "ann/base" and "from the weights of `ann/base`" in text
    assert "someone" not in text
    if tuned:  # its scores are others
        assert (card.eval_results, card.metrics) == (None, None)
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
