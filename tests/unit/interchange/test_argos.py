"""A package for Argos says what our search says with the settings of Argos."""

from pathlib import Path

import pytest
import torch

from tests.helpers.metrics import RAW
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import EOS
from transformer.interchange.argos import translate_as_argos, verify_argos, write_argos

from .test_ctranslate2_engine import TEXTS, willing


def test_each_translation_is_equal(tmp_path: Path) -> None:
    translator = willing(max_length=40)
    with torch.no_grad():
        # The empty hypothesis is among the best here; Argos never considers it.
        translator.model.projection.weight[EOS, 0] = 0.5
    file = write_argos(translator, {"source": "en", "target": "de"}, tmp_path, "float32")
    pairs = [(text, (text,)) for text in TEXTS if text.strip()]
    verified = verify_argos(translator, file, pairs, RAW)
    assert (verified["equal"], verified["sentences"]) == (1, len(pairs))
    assert verified["bleu"] == verified["bleu_exported"]
    # Argos does not know that the model was to read 40 subwords.
    assert len(translate_as_argos(file, ["a " * 60])) == 1


def test_positions_that_end_too_early_are_refused(tmp_path: Path) -> None:
    data = {"source": "en", "target": "de"}
    with pytest.raises(InputError, match="Argos reads 1024 subwords, more than the model has"):
        write_argos(willing(positions="learned"), data, tmp_path, "float32")
    assert not list(tmp_path.iterdir())
