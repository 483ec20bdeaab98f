"""A search over a shortlist: equal to that of the whole vocabulary if it has all tokens."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from transformer.common.errors import InputError, MissingFile
from transformer.data.text.lexical_translation import NULL, ibm_model_1
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.shortlist import Shortlist, with_shortlist_of
from transformer.decoding.translator import Translator
from transformer.model.layers.linear import Linear
from transformer.model.layers.quantization import Int8Linear, with_outputs
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

TEXTS = [source for source, _ in PAIRS] * 2 + ["a", "", "the dog " * 6]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"algorithm": "greedy", "beam_size": 1},
    "beam": {"beam_size": 3, "nbest": 3, "length_penalty": 1.0},
    "diverse": {"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.3},
    "mbr": {"algorithm": "mbr", "beam_size": 1, "candidates": 4, "candidates_by": "beam"},
    "ngrams": {"beam_size": 3, "no_repeat_ngram": 2, "eos_threshold": 1.5, "min_length": 2},
}


def learned(tokenizer: Tokenizer, best: int = 3, frequent: int = 5) -> Shortlist:
    """The shortlist of PAIRS."""
    pairs = tokenizer.encode_pairs(PAIRS)
    counts = np.bincount(
        np.concatenate([target for _, target in pairs]), minlength=tokenizer.target_vocab_size
    )
    lexicon = ibm_model_1(pairs, tokenizer.target_vocab_size, 3)
    return Shortlist.build(lexicon, counts, tokenizer, frequent, best)


def of_all(tokenizer: Tokenizer) -> Shortlist:
    """One of the whole vocabulary."""
    every = torch.arange(tokenizer.target_vocab_size)
    return Shortlist(every, torch.full((tokenizer.source_vocab_size, 1), EOS))


def with_shortlist(translator: Translator, shortlist: Shortlist, file: Path) -> Translator:
    shortlist.save(file, translator.tokenizer)
    return replace(translator, search=replace(translator.search, shortlist=str(file)))


@pytest.mark.parametrize("name", SEARCHES)
def test_a_shortlist_of_all_tokens_changes_nothing(name: str, tmp_path: Path) -> None:
    translator = tiny_translator(**SEARCHES[name])
    short = with_shortlist(translator, of_all(translator.tokenizer), tmp_path / "all.npz")
    assert short.translate(TEXTS) == translator.translate(TEXTS)


def test_log_probabilities_are_over_the_shortlist(tmp_path: Path) -> None:
    translator = tiny_translator(algorithm="greedy", beam_size=1)
    tokenizer = translator.tokenizer
    model = translator.model
    short = with_shortlist(translator, learned(tokenizer), tmp_path / "short.npz")
    text = "the dog sees a cat ."
    [translation] = short.translate([text])
    [source] = tokenizer.encode_source([text])
    tokens = learned(tokenizer).tokens([source])
    spelled = tokenizer.subwords(range(tokenizer.target_vocab_size))
    target = [spelled.index(token) for token in translation.tokens]
    assert {*target} <= {*tokens.tolist()} and len(tokens) < tokenizer.target_vocab_size / 2
    with torch.no_grad():
        source_ids = torch.tensor([[*source, EOS]])
        logits = model.logits(model(source_ids, torch.tensor([[BOS, *target]])))[0]
    logs = logits[:, tokens].log_softmax(-1)
    index = [tokens.tolist().index(token) for token in [*target, EOS]]
    total = logs[range(len(logs)), index].sum().item()
    assert translation.nbest[0].log_probability == pytest.approx(total, abs=1e-4)


def test_a_batch_has_the_candidates_of_all_its_sources() -> None:
    tokenizer = tiny_tokenizer()
    entries = [(NULL, 33, 0.3), (NULL, 34, 0.1), (NULL, 35, 0.6)]
    entries += [(9, 30, 0.1), (9, 31, 0.7), (9, 32, 0.2), (12, 31, 1.0)]
    keys = np.array(
        [source * tokenizer.target_vocab_size + target for source, target, _ in entries]
    )
    lexicon = keys, np.array([probability for *_, probability in entries])
    counts = np.zeros(tokenizer.target_vocab_size, int)
    counts[[40, 41, 42]] = 5, 7, 6
    shortlist = Shortlist.build(lexicon, counts, tokenizer, 2, 2)
    symbols, common = [PAD, UNK, BOS, EOS], [33, 35, 41, 42]
    # A joint vocabulary: each token is its own candidate.
    assert shortlist.tokens([[9]]).tolist() == [*symbols, 9, 31, 32, *common]
    assert shortlist.tokens([[12], [12, 9]]).tolist() == [*symbols, 9, 12, 31, 32, *common]
    # Of the targets of NULL, the 20 most probable ones are common.
    targets = np.arange(100, 140)
    of_null = (NULL * tokenizer.target_vocab_size + targets, 1 / targets)
    shortlist = Shortlist.build(of_null, 0 * counts, tokenizer, 1, 30)
    assert shortlist.common.tolist() == [*symbols, *range(100, 120)]


def test_a_batch_with_constraints_has_the_whole_vocabulary(tmp_path: Path) -> None:
    translator = tiny_translator(beam_size=2)
    few = learned(translator.tokenizer, best=1, frequent=1)
    short = with_shortlist(translator, few, tmp_path / "short.npz")
    asked = [Constraints(prefix="zwei bücher"), None]
    texts = TEXTS[:2]
    assert short.translate(texts, asked) == translator.translate(texts, asked)


def test_some_outputs_of_an_int8_projection_are_those_of_the_whole() -> None:
    rows = torch.tensor([0, 3, 19])
    linear = Linear(16, 40)
    packed = Int8Linear(linear.weight, linear.bias)
    part = with_outputs(packed, rows)
    assert torch.equal(part.weight, packed.unpacked()[0][rows])
    x = torch.randn(4, 16)
    torch.testing.assert_close(part(x), linear(x)[:, rows], atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    "changes",
    [
        {"vocabulary": np.zeros(32, np.uint8)},
        {"candidates": np.zeros((3, 2), np.int32)},
        {"common": np.array([0, 1, 2, 3, 10**6])},
        {"common": np.array([0, 1, 3, 4])},
    ],
)
def test_a_damaged_file_is_refused(changes: dict[str, np.ndarray], tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    file = tmp_path / "short.npz"
    shortlist = learned(tokenizer)
    shortlist.save(file, tokenizer)
    loaded = Shortlist.load(file, tokenizer)
    assert torch.equal(loaded.candidates, shortlist.candidates)
    assert torch.equal(loaded.common, shortlist.common)
    np.savez(file, **(dict(np.load(file)) | changes))
    with pytest.raises(InputError, match=f"{file} .*another vocabulary"):
        Shortlist.load(file, tokenizer)
    file.write_bytes(b"PK")
    with pytest.raises(InputError, match=f"{file} cannot be read"):
        Shortlist.load(file, tokenizer)


def test_auto_is_the_shortlist_of_the_run(tmp_path: Path) -> None:
    search = search_config(shortlist="auto")
    checkpoint = tmp_path / "checkpoints" / "best.ckpt"
    for file in (checkpoint, tmp_path / "ct2/model.bin"):
        file.parent.mkdir()
        file.touch()
    with pytest.raises(MissingFile, match="transformer shortlist checkpoint="):
        with_shortlist_of(search, checkpoint)
    (tmp_path / "shortlist.npz").touch()
    assert with_shortlist_of(search, checkpoint).shortlist == str(tmp_path / "shortlist.npz")
    # An export for CTranslate2 has its own.
    assert with_shortlist_of(search, tmp_path / "ct2") is search


def test_targets_with_given_tags_are_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer().with_tags(Tags(targets=("de", "fr"), both_sides=True))
    with pytest.raises(InputError, match=r"data\.target_tag=both"):
        Shortlist.load(tmp_path / "x.npz", tokenizer)
