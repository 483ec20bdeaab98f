"""Noise: what is masked, that the text can be told from both sides, and what it depends on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.data.corpora import (
    data_config,
    data_run,
    first_epoch,
    tokenizer_config,
    write_corpus,
)
from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.batching.batch import Row
from transformer.data.datamodules.denoising import DenoisingData, Noise
from transformer.data.tokenization.tags import Tags
from transformer.settings.data import DenoisingConfig

SENTINELS, MASK, END = tuple(range(900, 1000)), 899, 7


def noise(sentinels: int = 100, **changes: Any) -> Noise:
    return Noise(DenoisingConfig(**changes), SENTINELS[:sentinels], MASK, frozenset({END}))


def restored(source: Row, target: Row) -> list[int]:
    """The text: each sentinel of the source stands for what follows it in the target."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            spans[last := token] = []
        else:
            spans[last].append(token)
    assert spans.pop(last) == []  # the last sentinel ends the target
    text: list[int] = []
    for token in source:
        text += spans.pop(token) if token in SENTINELS else [token]
    assert spans == {}
    return text


@pytest.mark.parametrize(
    "changes", [{}, {"density": 0.6, "mean_span": 1.0}, {"density": 0.95, "mean_span": 8.0}]
)
def test_source_and_target_of_spans_have_the_text_and_the_planned_lengths(changes: Any) -> None:
    making = noise(**changes)
    sizes = np.arange(1, 120)
    for size, source_length, target_length in zip(sizes, *making.lengths(sizes), strict=True):
        text = list(range(10, 10 + size))
        source, target = making.pair(text, seed=int(size))
        assert restored(source, target) == text
        assert (len(source), len(target)) == (source_length, target_length)


def test_spans_are_as_many_and_as_long_as_asked_for_and_everywhere() -> None:
    masked = np.zeros(100)
    making = noise()
    for seed in range(400):
        source, target = making.pair(np.arange(100), seed)
        assert sum(token < 900 for token in target) == 15
        assert sum(token >= 900 for token in source) == 5
        masked[[token for token in target if token < 900]] += 1
    # Each token in 15 % of the texts, within five standard deviations of that.
    assert masked[3:97].min() > 60 - 36 and masked[3:97].max() < 60 + 36
    assert masked[0] > 0 and masked[99] > 0 and masked[99] < 400
    assert len(noise(3).pair(np.arange(500), 0)[1]) == 75 + 3  # two spans, and the end


def test_infilling_writes_the_text_from_a_mask_for_each_span() -> None:
    making, kept, spans = noise(objective="infilling", density=0.3), 0, []
    for seed in range(300):
        size = 1 + seed % 100
        text = list(range(10, 10 + size))
        source, target = making.pair(text, seed)
        assert list(target) == text and len(source) <= size
        words = [token for token in source if token != MASK]
        assert words == sorted({*words}) and len(words) == size - max(1, round(size * 0.3))
        if size == 100:
            kept, spans = kept + 1, [*spans, len(source) - len(words)]
    # 30 tokens in spans of three, some of them empty.
    assert kept == 3 and all(5 <= count <= 18 for count in spans)
    assert list(making.pair([5], 3)[0]) == [MASK]


def test_sentences_change_places() -> None:
    sentences = ([1, 2, END], [3, END], [4, 5, 6])
    text = [token for sentence in sentences for token in sentence]
    seen = set()
    for seed in range(60):
        making = noise(objective="infilling", permute=True)
        permuted = making._permuted(text, np.random.default_rng(seed))
        starts = sorted((permuted.index(sentence[0]), sentence) for sentence in sentences)
        assert [token for _, sentence in starts for token in sentence] == permuted
        seen.add(tuple(permuted))
        assert list(making.pair(text, seed)[1]) == text
    assert len(seen) == 6
    assert {*noise(objective="infilling").pair(text, 1)[0]} <= {*text, MASK}


@pytest.mark.parametrize("objective", ["spans", "infilling"])
def test_the_tags_of_a_text_stay_on_both_sides(objective: str) -> None:
    plain = noise(objective=objective, density=0.5)
    tagged = replace(plain, tags=1)
    for seed in range(30):
        text = list(range(10, 12 + seed))
        source, target = tagged.pair([800, *text], seed)
        assert (source, target) == tuple([800, *side] for side in plain.pair(text, seed))
        sizes = tagged.lengths(np.array([1 + len(text)]))
        assert len(source) <= sizes[0] and len(target) <= sizes[1]
    begun = tiny_tokenizer().with_words(["<extra_id_0>"]).with_tags(Tags(begin=True))
    assert Noise.from_tokenizer(DenoisingConfig(objective="infilling"), begun).tags == 1


def data(folder: Path, **changes: Any) -> DenoisingData:
    tokenizer = tiny_tokenizer().with_words(["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"])
    config = data_config(folder, train=str(write_corpus(folder)), **changes)
    return DenoisingData(data_run(config, tokenizer_config()), tokenizer)


def batches(data: DenoisingData) -> list[tuple[list[Any], list[Any]]]:
    data.prepare_data()
    data.setup("fit")
    return [(b.source.tolist(), b.target_output.tolist()) for b in first_epoch(data)]


def test_noise_is_a_function_of_seed_and_epoch(tmp_path: Path) -> None:
    one, same = data(tmp_path), data(tmp_path)
    assert batches(one) == batches(same)
    assert batches(data(tmp_path, seed=4)) != batches(one)
    key = one.sequence[0]
    later = one._training[type(key)(1, key.pairs)]
    assert later.source.tolist() != one._training[key].source.tolist()
    noisy = one.noisy("validation")
    assert len(noisy) == 9 and [*map(repr, noisy)] == [*map(repr, same.noisy("validation"))]
    size = one.tokenizer.target_vocab_size
    assert all(source[-1] == size - 3 or size - 3 in source for source, _ in noisy)
    # The budget holds for the lengths with noise.
    assert all(b.positions <= 2 * 96 for b in first_epoch(one))


def test_all_texts_are_scored_whatever_the_budget(tmp_path: Path) -> None:
    short = data(tmp_path, max_length=3, batch_tokens=8, max_left_out=1.0)
    short.prepare_data()
    noisy = short.noisy("validation")
    assert [*map(repr, noisy)] == [*map(repr, data(tmp_path).noisy("validation"))]
    assert max(len(source) for source, _ in noisy) > 7


def test_a_vocabulary_without_sentinels_is_refused(tmp_path: Path) -> None:
    plain = tiny_tokenizer()
    with pytest.raises(InputError, match=r"set tokenizer.sentinels=100 tokenizer.joint=true"):
        Noise.from_tokenizer(DenoisingConfig(), plain)
    one_sentinel = plain.with_words(["<extra_id_0>"])
    with pytest.raises(InputError, match="sentinels=100"):
        Noise.from_tokenizer(DenoisingConfig(), one_sentinel)
    infilling = DenoisingConfig(objective="infilling")
    size = plain.target_vocab_size
    assert Noise.from_tokenizer(infilling, one_sentinel).mask == size
    assert Noise.from_tokenizer(infilling, plain.with_words(["<mask>"])).mask == size
    ends = Noise.from_tokenizer(infilling, one_sentinel).sentence_ends
    assert plain.encode_target(["a ."])[0][-1] in ends
