"""Translations of sounds and pictures: windows, times, memory and errors by line."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.decoding.file_translators import (
    file_tokenizer,
    file_translator,
    write_picture,
    write_sound,
)
from tests.helpers.decoding.steps import search_config
from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.data.features.read_source import ReadSource, Times
from transformer.data.tokenization.tags import SourceTags, SpeechTags, Tags, is_tag
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batching import make_windows
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.long_inputs import SourceLimits, source_windows
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.translator import Translator
from transformer.model.transformer import Transformer
from transformer.quality.failures.monitor import as_output


def test_long_sound_has_windows_with_times(tmp_path: Path) -> None:
    translator = file_translator(usual=100)
    sound = write_sound(tmp_path / "long.wav", 10.0)
    [found] = translator.translate([str(sound)])
    assert found.parts == 3  # 250 vectors of 0.04 s, in windows of at most 100
    assert found.segments is not None
    starts, ends, texts = zip(*found.segments, strict=True)
    assert starts[0] == 0 and ends[-1] == pytest.approx(10.0)
    assert starts[1:] == ends[:-1]
    assert max(end - start for start, end in zip(starts, ends, strict=True)) <= 4.0
    # The cut is in the last fifth of a window, where the sound is silent: after 4 and 8 s.
    assert ends[0] == pytest.approx(4.0, abs=0.12)
    assert found.text == " ".join(texts)
    assert found.source_tokens[-1] == "9.96s"
    assert found.to_json()["segments"][1]["start"] == round(starts[1], 3)
    # Each window is searched as a sound of its own.
    part = f"{sound}#t={starts[1]:.2f},{ends[1]:.2f}"
    [alone] = translator.translate([part])
    assert alone.segments is not None and alone.segments[0].start == pytest.approx(starts[1])


def speech_model(tokenizer: Tokenizer) -> Transformer:
    return tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        front_end="s2t",
        tie_embeddings="none",
        max_length=256,
    )


def test_the_prompt_of_a_window_is_no_part_of_the_length(tmp_path: Path) -> None:
    symbols = ("transcribe", "translate", "notimestamps")
    tags = Tags(targets=("de",), both_sides=True, speech=SpeechTags(symbols))
    tokenizer = file_tokenizer("speech").with_tags(tags).tagged(SourceTags("de", source="de"))
    model = speech_model(tokenizer)
    mean = search_config(length_penalty=1.0, length_penalty_form="average")
    translator = Translator(model, tokenizer, mean, limits=SourceLimits(usual=60))
    for seconds, parts in ((2.0, 1), (4.0, 2)):
        [found] = translator.translate([str(write_sound(tmp_path / "a.wav", seconds))])
        written = [token for token in found.tokens if not is_tag(token)]
        assert (found.parts, len(found.tokens)) == (parts, len(written) + 3 * parts)
        per_token = found.nbest[0].log_probability / (len(written) + parts)
        assert found.score == pytest.approx(per_token)
        assert as_output(found).log_probability == pytest.approx(per_token)


def test_the_times_of_a_changed_speed_are_those_of_the_file(tmp_path: Path) -> None:
    symbols = ("transcribe", "translate", "notimestamps")
    tags = Tags(targets=("de",), both_sides=True, speech=SpeechTags(symbols, times=201))
    tokenizer = file_tokenizer("speech", seconds=4.0).with_tags(tags)
    tokenizer = tokenizer.tagged(SourceTags("de", source="de"))
    # The times 0.5 and 1.0 are 25 and 50 steps of 0.02 s.
    [word] = tokenizer.encode_target(["one"])
    row = (tokenizer.times.start + 25, *word, tokenizer.times.start + 50)
    model = speech_model(tokenizer)
    translator = Translator(
        model,
        tokenizer,
        search_config(),
        limits=SourceLimits(usual=100),
        engine=lambda _: lambda segments: [[Hypothesis(row, 0.0, 0.0)] for _ in segments],
        timestamps=True,
    )
    sound = write_sound(tmp_path / "a.wav", 4.0)
    for speed, times in ((1, (0.5, 1.0)), (2, (1.0, 2.0)), (0.5, (0.25, 0.5))):
        [found] = translator.translate([f"{sound}#speed={speed}"])
        assert found.segments is not None
        assert found.segments[0][:2] == times
    step = file_translator().translate([f"{sound}#speed=2"])[0].source_tokens[1]
    assert step == "0.08s"


def test_a_short_sound_has_the_vectors_of_training(tmp_path: Path) -> None:
    read = file_tokenizer("speech").vector_source
    sound = str(write_sound(tmp_path / "short.wav", 3.3))
    source = read.opened(sound)
    np.testing.assert_array_equal(source.vectors, read.read([sound])[0])
    assert source.times is not None and source.times.end == pytest.approx(3.3)


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_a_sound_of_several_minutes_is_read_in_pieces(tmp_path: Path, rate: int) -> None:
    read = file_tokenizer("speech").vector_source
    sound = str(write_sound(tmp_path / "long.wav", 125.0, rate))
    source = read.opened(sound)
    whole = read.read([sound])[0]
    assert len(source.vectors) == len(whole) == 3125
    assert not np.isnan(source.vectors[:-1]).any()
    # Both ends of a piece are mirrored; resampling starts anew.
    near = np.abs(source.vectors - whole).max(axis=1) < 0.02
    assert near.mean() > 0.99
    assert source.times is not None
    assert source.times.step == pytest.approx(0.04)


def test_sounds_of_one_length_have_windows_of_it(tmp_path: Path) -> None:
    translator = file_translator(seconds=4.0)
    [found] = translator.translate([str(write_sound(tmp_path / "a.wav", 10.0))])
    assert found.segments is not None
    times = [segment[:2] for segment in found.segments]
    assert times[0][0] == 0 and times[-1][1] == pytest.approx(10)
    for (start, end), (following, _) in pairwise(times):
        assert end == following and 0.8 * 4 <= end - start <= 4
    assert times[-1][1] - times[-1][0] <= 4


def test_windows_of_files_end_at_a_number_of_bytes() -> None:
    lines = [Request(ReadSource("a", np.zeros((10, 2), np.float32))) for _ in range(7)]
    windows = make_windows(lines, None, lambda line: line.text.vectors.nbytes, 200)
    assert [len(window) for window in windows] == [3, 3, 1]


def test_source_windows_of_an_empty_source() -> None:
    assert source_windows(ReadSource("", np.zeros((0, 2), np.float32)), SourceLimits()) == []


def test_parts_keep_tags_and_times() -> None:
    source = ReadSource("a", np.arange(20.0).reshape(10, 2), Times(1.0, 1.95, 0.1))
    part = source.part(8, 10)
    assert part.times is not None
    assert (part.times.start, part.times.end) == pytest.approx((1.8, 1.95))
    np.testing.assert_array_equal(part.vectors, source.vectors[8:])


def test_errors_name_line_and_file_after_the_lines_before(tmp_path: Path) -> None:
    translator = file_translator("image")
    picture = write_picture(tmp_path / "a.png")
    stream = translator.translate_stream([str(picture), "", str(tmp_path / "none.png"), "b"])
    assert next(stream).source_tokens == ("0,0", "0,1", "0,2", "0,3", "0,4", "0,5")
    assert next(stream).text == ""
    with pytest.raises(InputError, match=r"line 3: .*none\.png: no such file"):
        next(stream)


def test_phrases_are_required_of_one_window(tmp_path: Path) -> None:
    translator = file_translator(usual=100)
    translator = type(translator)(
        translator.ensemble,
        translator.tokenizer,
        translator.search.__class__(beam_size=3, max_length_ratio=0.0, max_length_offset=8),
        limits=translator.limits,
    )
    sound = str(write_sound(tmp_path / "long.wav", 10.0))
    [found] = translator.translate([sound], [Constraints(prefix="two", must=("three",))])
    assert found.unmet == ()
    assert found.text.startswith("two")
    with pytest.raises(InputError, match="terms"):
        translator.translate([sound], [Constraints(terms=((sound, "drei"),))])


def test_batches_do_not_change_a_translation(tmp_path: Path) -> None:
    translator = file_translator("image")
    pictures = [str(write_picture(tmp_path / f"{n}.png", 8 * n)) for n in range(1, 6)]
    together = translator.translate(pictures, attention=True)
    for picture, found in zip(pictures, together, strict=True):
        [alone] = translator.translate([picture], attention=True)
        assert alone.text == found.text
        assert alone.attention is not None and found.attention is not None
        torch.testing.assert_close(alone.attention, found.attention)
