"""A package for Argos translates as our search with the settings of Argos."""

from pathlib import Path

import pytest
import torch

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import EOS
from transformer.interchange.argos import translate_as_argos, verify_argos, write_argos

from .test_ctranslate2_engine import TEXTS, willing


def test_each_translation_is_equal(tmp_path: Path) -> None:
    translator = willing(max_length=40)
    with torch.no_grad():
        # So probable that an empty text would often be the best; Argos has none.
        translator.model.projection.weight[EOS, 0] = 0.5
    file = write_argos(translator, {"source": "en", "target": "de"}, tmp_path, "float32")
    pairs = [(text, (text,)) for text in TEXTS if text.strip()]
    verified = verify_argos(translator, file, pairs, RAW)
    assert (verified["equal"], verified["sentences"]) == (1, len(pairs))
    assert verified["bleu"] == verified["bleu_exported"]
    # Argos does not know model.max_length.
    assert len(translate_as_argos(file, ["a " * 1100])) == 1


def test_positions_that_end_too_early_are_refused(tmp_path: Path) -> None:
    data = {"source": "en", "target": "de"}
    with pytest.raises(InputError, match=r"Argos needs model.max_length=1024, or .*sinusoidal;"):
        write_argos(willing(positions="learned"), data, tmp_path, "float32")
    assert not list(tmp_path.iterdir())
