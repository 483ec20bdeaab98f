"""What an exported model lacks is measured."""

from pathlib import Path
from typing import get_args

import ctranslate2
import pytest
import torch

from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.common.errors import InputError
from transformer.interchange.argos import translate_as_argos, verify_argos, write_argos
from transformer.interchange.ctranslate2 import write_ctranslate2
from transformer.interchange.verification import agreement, verify_ctranslate2
from transformer.settings.commands import Quantization
from transformer.settings.data import DataConfig
from transformer.settings.tokenizer import EOS

from .test_ctranslate2_engine import TEXTS as NASTY_TEXTS
from .test_ctranslate2_engine import willing

TEXTS = [(source, (target,)) for source, target in PAIRS]


def test_agreement_ends_at_the_first_difference() -> None:
    for expected, found, fraction in (
        (["ab"], ["ab"], 1.0),
        (["ab"], ["ax"], 1 / 3),
        (["ab"], ["a"], 1 / 3),
        (["a"], ["ab"], 1 / 2),
        (["ab", ""], ["x", ""], 1 / 4),
        ([], [], 1.0),
    ):
        assert agreement(expected, found) == pytest.approx(fraction)


def test_an_export_agrees_and_a_stranger_does_not(tmp_path: Path) -> None:
    translator = tiny_translator()
    write_ctranslate2(translator.model, translator.tokenizer, tmp_path)
    same = verify_ctranslate2(translator, tmp_path, TEXTS, RAW)
    assert (same["agreement"], same["sentences"]) == (1, len(TEXTS))
    assert same["bleu"] == same["bleu_exported"]
    assert same["speed_up"] > 0
    searching = {"algorithm": "diverse", "beam_size": 4, "groups": 2, "min_length": 9}
    found = verify_ctranslate2(tiny_translator(**searching), tmp_path, TEXTS, RAW)
    assert found | {"speed_up": same["speed_up"]} == same
    short = tiny_translator(max_length=8)
    assert verify_ctranslate2(short, tmp_path, TEXTS[:1], RAW)["agreement"] == 1
    other = tiny_translator(encoder_layers=1, decoder_layers=1)
    assert verify_ctranslate2(other, tmp_path, TEXTS, RAW)["agreement"] < 1


def test_a_sentence_that_we_would_cut_is_not_compared(tmp_path: Path) -> None:
    translator = tiny_translator(max_length=12)
    write_ctranslate2(translator.model, translator.tokenizer, tmp_path)
    long = ("a dog runs . " * 9, ("ein hund .",))
    found = verify_ctranslate2(translator, tmp_path, [long, *TEXTS[:1]], RAW)
    assert (found["agreement"], found["sentences"]) == (1, 1)
    with pytest.raises(InputError, match="no validation sentence has 11 subwords or fewer"):
        verify_ctranslate2(translator, tmp_path, [long], RAW)


@pytest.mark.parametrize("quantization", get_args(Quantization))
def test_a_type_without_support_is_verified_in_another(quantization: str, tmp_path: Path) -> None:
    translator = tiny_translator()
    before = {name: weight.clone() for name, weight in translator.model.state_dict().items()}
    write_ctranslate2(translator.model, translator.tokenizer, tmp_path, quantization)
    for name, weight in translator.model.state_dict().items():
        assert torch.equal(weight, before[name])
    found = verify_ctranslate2(translator, tmp_path, TEXTS, RAW)
    assert found["agreement"] > 0.5
    supported = ctranslate2.get_supported_compute_types("cpu")
    if quantization in supported:
        assert found["computed_in"].startswith(quantization)
    else:
        assert found["computed_in"] in supported


def test_a_package_of_argos_translates_alike(tmp_path: Path) -> None:
    # The engine ends a translation at 256 subwords, whatever model.max_length is.
    translator = willing(max_length=300)
    with torch.no_grad():
        # So probable that an empty text would often be the best; Argos has none.
        translator.model.projection.weight[EOS, 0] = 0.5
    file = write_argos(translator, DataConfig(source="en", target="de"), tmp_path, "float32")
    pairs = [(text, (text,)) for text in NASTY_TEXTS if text.strip()]
    verified = verify_argos(translator, file, pairs, RAW)
    assert (verified["equal"], verified["sentences"]) == (1, len(pairs))
    assert verified["bleu"] == verified["bleu_exported"]
    # Nor does Argos cut a source at model.max_length.
    assert len(translate_as_argos(file, ["a " * 1100])) == 1


def test_argos_needs_positions_for_its_length(tmp_path: Path) -> None:
    data = DataConfig(source="en", target="de")
    with pytest.raises(InputError, match=r"Argos needs model.max_length=1024, or .*sinusoidal;"):
        write_argos(willing(positions="learned"), data, tmp_path, "float32")
    assert not list(tmp_path.iterdir())
