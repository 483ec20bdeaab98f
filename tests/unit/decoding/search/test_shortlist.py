"""A search over a shortlist: that of the whole vocabulary where it has all, and within it else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError, MissingFile
from transformer.data.text.lexical_translation import NULL, ibm_model_1
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.model_step import Ensemble
from transformer.decoding.search.shortlist import Shortlist, with_shortlist_of
from transformer.decoding.translator import Translator
from transformer.model.layers.linear import Linear
from transformer.model.layers.quantization import Int8Linear, with_outputs
from transformer.settings.run import RunConfig
from transformer.settings.tokenizer import BOS, EOS, PAD, UNK

TEXTS = [source for source, _ in PAIRS] * 2 + ["a", "", "the dog " * 6]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"algorithm": "greedy", "beam_size": 1},
    "beam": {"beam_size": 3, "nbest": 3, "length_penalty": 1.0},
    "diverse": {"algorithm": "diverse", "beam_size": 4, "groups": 2, "diversity": 0.3},
    "mbr": {"algorithm": "mbr", "beam_size": 1, "candidates": 4, "candidates_by": "beam"},
    "coverage": {"beam_size": 3, "coverage_penalty": 0.2},
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


@pytest.mark.parametrize("name", SEARCHES)
def test_a_shortlist_of_all_tokens_changes_nothing(name: str, tmp_path: Path) -> None:
    translator = tiny_translator(**SEARCHES[name])
    path = tmp_path / "all.npz"
    of_all(translator.tokenizer).save(path, translator.tokenizer)
    short = replace(translator, search=replace(translator.search, shortlist=str(path)))
    assert short.translate(TEXTS) == translator.translate(TEXTS)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_stays_inside(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but one token, which the search would choose: the ids are those of the vocabulary."""
    translator = tiny_translator(**SEARCHES[name])
    tokenizer, texts = translator.tokenizer, TEXTS[:4]
    found = translator.translate(texts)
    spelled = tokenizer.subwords(range(tokenizer.target_vocab_size))
    used = sorted({spelled.index(token) for one in found for token in one.tokens} - {UNK})
    missing = used[len(used) // 2]
    shortlist = of_all(tokenizer)
    kept = shortlist.common[shortlist.common != missing]
    path = tmp_path / "one_less.npz"
    replace(shortlist, common=kept).save(path, tokenizer)
    short = replace(translator, search=replace(translator.search, shortlist=str(path)))
    banning = replace(translator, search=translator.search)
    never = tokenizer.never_written
    monkeypatch.setattr(Tokenizer, "never_written", (*never, missing))
    for one, wanted in zip(short.translate(texts), banning.translate(texts), strict=True):
        assert spelled[missing] not in one.tokens
        if name == "greedy":  # the best token of the others does not depend on its probability
            assert one.tokens == wanted.tokens
            assert one.nbest[0].log_probability > wanted.nbest[0].log_probability


def test_log_probabilities_are_over_the_shortlist(tmp_path: Path) -> None:
    translator = tiny_translator(algorithm="greedy", beam_size=1)
    tokenizer, model = translator.tokenizer, translator.model
    path = tmp_path / "short.npz"
    learned(tokenizer).save(path, tokenizer)
    short = replace(translator, search=replace(translator.search, shortlist=str(path)))
    text = "the dog sees a cat ."
    [one] = short.translate([text])
    [source] = tokenizer.encode_source([text])
    tokens = learned(tokenizer).tokens([source])
    spelled = tokenizer.subwords(range(tokenizer.target_vocab_size))
    target = [spelled.index(token) for token in one.tokens]
    assert {*target} <= {*tokens.tolist()} and len(tokens) < tokenizer.target_vocab_size / 2
    with torch.no_grad():
        source_ids = torch.tensor([[*source, EOS]])
        logits = model.logits(model(source_ids, torch.tensor([[BOS, *target]])))[0]
    logs = logits[:, tokens].log_softmax(-1)
    wanted = [*target, EOS][: len(logs)]
    index = [tokens.tolist().index(token) for token in wanted]
    total = logs[range(len(logs)), index].sum().item()
    assert one.nbest[0].log_probability == pytest.approx(total, abs=1e-4)


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
    tagged = tokenizer.with_tags(Tags(targets=("de", "fr")))
    counts = np.zeros(tagged.target_vocab_size, int)
    with_tags = Shortlist.build((keys[:0], lexicon[1][:0]), counts, tagged, 1, 1)
    last = [tagged.target_vocab_size - 2, tagged.target_vocab_size - 1]
    assert with_tags.common.tolist() == [*symbols, *last]


def test_only_the_best_without_a_source_are_common() -> None:
    tokenizer = tiny_tokenizer()
    targets = np.arange(100, 140)
    lexicon = NULL * tokenizer.target_vocab_size + targets, 1 / targets
    counts = np.zeros(tokenizer.target_vocab_size, int)
    common = Shortlist.build(lexicon, counts, tokenizer, 1, 30).common
    assert common.tolist() == [PAD, UNK, BOS, EOS, *range(100, 120)]


def test_a_batch_with_constraints_has_the_whole_vocabulary(tmp_path: Path) -> None:
    translator = tiny_translator(beam_size=2)
    path = tmp_path / "short.npz"
    learned(translator.tokenizer, best=1, frequent=1).save(path, translator.tokenizer)
    short = replace(translator, search=replace(translator.search, shortlist=str(path)))
    asked = [Constraints(prefix="zwei bücher"), None]
    texts = TEXTS[:2]
    assert short.translate(texts, asked) == translator.translate(texts, asked)
    assert short.translate(texts) != translator.translate(texts)


def test_an_ensemble_has_one(tmp_path: Path) -> None:
    translator = tiny_translator(beam_size=2)
    tokenizer, model = translator.tokenizer, translator.model
    torch.manual_seed(8)
    ensemble = Ensemble([model, tiny_transformer(**_sizes(tokenizer)).eval()])
    path = tmp_path / "short.npz"
    learned(tokenizer).save(path, tokenizer)
    search = replace(translator.search, shortlist=str(path))
    [one] = Translator(ensemble, tokenizer, search, 200).translate(TEXTS[:1])
    twice = Translator(Ensemble([model, model]), tokenizer, search, 200).translate(TEXTS[:1])
    [alone] = replace(translator, search=search).translate(TEXTS[:1])
    assert twice[0].tokens == alone.tokens
    assert twice[0].score == pytest.approx(alone.score, abs=1e-5)
    tokens = learned(tokenizer).tokens(tokenizer.encode_source(TEXTS[:1]))
    assert {*one.tokens} <= {*tokenizer.subwords(tokens.tolist())}


def _sizes(tokenizer: Tokenizer) -> dict[str, int]:
    return {
        f"{side}_vocab_size": getattr(tokenizer, f"{side}_vocab_size")
        for side in ("source", "target")
    }


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_some_outputs_are_those_of_the_whole(bias: bool, transposed: bool) -> None:
    torch.manual_seed(3)
    linear, rows, x = Linear(6, 20, bias=bias), torch.tensor([0, 3, 19]), torch.randn(4, 6)
    if transposed:
        linear.weight = torch.nn.Parameter(linear.weight.detach().t().contiguous().t())
    part = with_outputs(linear, rows)
    assert part.weight.is_contiguous() is not transposed
    torch.testing.assert_close(part(x), linear(x)[:, rows])


def test_int8_has_the_rounded_weights() -> None:
    torch.manual_seed(3)
    linear, rows, x = Linear(16, 40), torch.tensor([0, 3, 19]), torch.randn(4, 16)
    packed = Int8Linear(linear.weight, linear.bias)
    part = with_outputs(packed, rows)
    assert torch.equal(part.weight, packed.unpacked()[0][rows])
    torch.testing.assert_close(part(x), linear(x)[:, rows], atol=0.05, rtol=0.05)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def of_objects(path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, common=np.array([Path("x")], dtype=object))


def changed(**arrays: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        known = dict(np.load(path))
        with open(path, "wb") as file:
            np.savez(file, **(known | arrays))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Path.unlink, "cannot be read"),
        (damaged, "cannot be read"),
        (of_objects, "cannot be read"),
        (changed(vocabulary=np.zeros(32, np.uint8)), "was made for another vocabulary"),
        (changed(candidates=np.zeros((3, 2), np.int32)), "was made for another vocabulary"),
        (changed(common=np.array([0, 1, 2, 3, -1])), "was made for another vocabulary"),
        (changed(common=np.array([0, 1, 2, 3, 10**6])), "was made for another vocabulary"),
        (changed(common=np.array([0, 1, 3, 4])), "was made for another vocabulary"),
        (changed(common=np.array(3)), "was made for another vocabulary"),
    ],
)
def test_a_damaged_file_is_refused(
    change: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    tokenizer, path = tiny_tokenizer(), tmp_path / "short.npz"
    learned(tokenizer).save(path, tokenizer)
    back = Shortlist.load(path, tokenizer)
    assert torch.equal(back.candidates, learned(tokenizer).candidates)
    assert torch.equal(back.common, learned(tokenizer).common)
    change(path)
    with pytest.raises(InputError, match=says) as refused:
        Shortlist.load(path, tokenizer)
    # An export reads it, too, without any decoding.shortlist.
    assert str(refused.value).startswith(f"{path} ")


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "sampling"},
        {"algorithm": "mbr", "beam_size": 1, "candidates": 4},
    ],
)
def test_what_does_not_go_with_it_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"decoding\.shortlist has no effect with"):
        search_config(shortlist="x.npz", **changes)


def test_auto_is_that_of_the_run(tmp_path: Path) -> None:
    search = search_config(shortlist="auto")
    (tmp_path / "checkpoints").mkdir()
    checkpoint = tmp_path / "checkpoints" / "best.ckpt"
    checkpoint.touch()
    with pytest.raises(MissingFile, match="transformer shortlist checkpoint="):
        with_shortlist_of(search, checkpoint)
    (tmp_path / "shortlist.npz").touch()
    for path in (checkpoint, tmp_path):
        found = with_shortlist_of(search, path).shortlist
        assert found == str(tmp_path.resolve() / "shortlist.npz")
    plain = search_config()
    assert with_shortlist_of(plain, tmp_path / "gone") is plain
    for name in ("model.safetensors", "model.bin"):
        (tmp_path / name.partition(".")[2]).mkdir()
        (tmp_path / name.partition(".")[2] / name).touch()
    with pytest.raises(MissingFile, match=r"set decoding\.shortlist=RUN/shortlist\.npz$"):
        with_shortlist_of(search, tmp_path / "safetensors")
    assert with_shortlist_of(search, tmp_path / "bin") is search


def test_targets_with_given_tags_are_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer().with_tags(Tags(targets=("de", "fr"), both_sides=True))
    with pytest.raises(InputError, match=r"data\.target_tag=both"):
        Shortlist.load(tmp_path / "x.npz", tokenizer)


def test_no_training_has_one() -> None:
    with pytest.raises(InputError, match=r"training does not use decoding\.shortlist"):
        RunConfig(decoding=search_config(shortlist="auto"))
