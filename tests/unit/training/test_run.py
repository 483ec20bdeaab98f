"""What only the run can check, since it sees the config, the tokenizer and the trainer at once."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.helpers.runs import composed
from transformer.data.tokenizer import Tokenizer
from transformer.errors import InputError
from transformer.training.callbacks import TranslateValidation
from transformer.training.run import build_trainer, model_config


def test_two_vocabularies_of_one_size_cannot_share_an_embedding(tmp_path: Path) -> None:
    tokenizer = Mock(spec=Tokenizer, joint=False, source_vocab_size=9, target_vocab_size=9)
    with pytest.raises(InputError, match="needs one vocabulary"):
        model_config(composed([], tmp_path), tokenizer)
    apart = composed(["model.tie_embeddings=decoder"], tmp_path)
    assert model_config(apart, tokenizer).tie_embeddings == "decoder"


def test_validations_are_counted_in_updates(tmp_path: Path) -> None:
    config = composed(
        ["trainer.val_check_interval=6", "trainer.accumulate_grad_batches=2"], tmp_path
    )
    trainer = build_trainer(config, tmp_path, Mock(spec=TranslateValidation))
    assert trainer.val_check_interval == 12
