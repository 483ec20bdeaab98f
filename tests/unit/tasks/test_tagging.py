"""Order and accuracy of a tagger, and settings that it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.decoding.translators import tiny_tokenizer
from tests.helpers.runs.runs import composed
from tests.unit.data.datamodules.test_tagging import SENTENCES, write
from transformer.common.errors import InputError
from transformer.data.text.conllu import TaggedSentence
from transformer.decoding.prediction import Tagger
from transformer.tasks.tagging import Tagging

ALONE = [
    "task=tagging",
    "model.decoder_layers=0",
    "model.tie_embeddings=none",
    "data.validation_size=0",
    "data.test_size=0",
]


def files(folder: Path, *overrides: str, sentences: list[TaggedSentence] = SENTENCES) -> Tagging:
    text = [f"data.{name}={write(folder / name, sentences)}" for name in ("train", "validation")]
    config = composed(["data=files", *text, *ALONE, *overrides], folder / "cache")
    return Tagging(config, tiny_tokenizer())


@torch.no_grad()
def test_accuracy_in_training_is_the_percentage_of_words(tmp_path: Path) -> None:
    module: Any = files(tmp_path).module.eval()
    hidden = torch.randn(4, module.model.projection.in_features)
    right = module.model.logits(hidden).argmax(-1)
    right[0] = (right[0] + 1) % module.model.projection.out_features
    module.validate(hidden, right)
    assert module.means.over_all_ranks()["val/accuracy"] == 75.0


def test_the_order_of_the_sentences_is_kept(tmp_path: Path) -> None:
    task = files(tmp_path)
    model = task.module.model.eval()
    words = [list(sentence.words) for sentence in SENTENCES]

    def tagged(budget: int, sentences: list[list[str]]) -> list[tuple[str, ...]]:
        tagger = Tagger(model, task.data.tokenizer, budget)
        return [found.tags for found in tagger.tag(sentences)]

    alone = [tagged(50, [sentence])[0] for sentence in words]
    assert [len(tags) for tags in alone] == [3, 2, 2]
    assert tagged(50, words) == alone
    assert tagged(1, words) == alone  # each alone, longer than the budget


def test_words_that_training_leaves_out_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = TaggedSentence(("cat",) * 30, ("NOUN",) * 30)
    task = files(tmp_path, "data.max_length=20", sentences=[*SENTENCES, long])
    tagger = Tagger(task.module.model.eval(), task.data.tokenizer)
    monkeypatch.setattr(Tagger, "load", lambda *_, **__: tagger)
    scores = task.evaluator(tmp_path, "cpu")("validation").scores
    signatures = {score.name: score.signature for score in scores}
    assert signatures["accuracy"].startswith("words:37|unknown:30|")


def test_settings_of_translation_are_refused(tmp_path: Path) -> None:
    for override in ("tokenizer.sampling=0.1", "data.streaming=True", "model.tie_embeddings=all"):
        with pytest.raises(InputError, match=override):
            files(tmp_path, override)
    for override in ("data.test_size=50", "tokenizer.joint=false"):
        config = composed([*ALONE, override], tmp_path)
        with pytest.raises(InputError, match=override):
            Tagging(config)
        Tagging(config, tiny_tokenizer())  # a checkpoint of such a run is still good


def test_only_learned_positions_end(tmp_path: Path) -> None:
    files(tmp_path, "model.max_length=5").data.prepare_data()
    with pytest.raises(InputError, match=r"validation:1: .* set model\.max_length="):
        files(tmp_path, "model.max_length=5", "model.positions=learned").data.prepare_data()
