"""Raw text in, raw text out: order, batches, blanks, lengths, n-best lists, attention, streams."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.decoding.translators import (
    PAIRS,
    save_translator,
    tiny_tokenizer,
    tiny_translator,
)
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, parse_tags, with_tags
from transformer.decoding import batched_search
from transformer.decoding.batched_search import search_batch
from transformer.decoding.batching import without_end
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.search.model_step import build_step
from transformer.decoding.translator import BLANK, Translator, length_counts
from transformer.model.attention.multi_head import MultiHeadAttention

TEXTS = [source for source, _ in PAIRS] + ["", "dog", "a cat reads the book . the child sleeps ."]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_order_and_batches_do_not_matter(beam_size: int) -> None:
    search = {"beam_size": beam_size, "nbest": beam_size, "max_length_ratio": 1.0}
    alone = [tiny_translator(1, **search).translate([text])[0] for text in TEXTS]
    assert len({t.text for t in alone}) > 4
    together = tiny_translator(60, **search).translate(TEXTS)
    assert [t.text for t in together] == [t.text for t in alone]
    assert [t.score for t in together] == pytest.approx([t.score for t in alone], abs=1e-4)
    for translation in together[:4]:
        scores = [candidate.score for candidate in translation.nbest]
        assert scores == sorted(scores, reverse=True)
        assert len({candidate.tokens for candidate in translation.nbest}) == beam_size
        assert translation.text == translation.nbest[0].text


def test_translations_that_reach_the_longest_length_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    translations = tiny_translator(max_length_offset=3).translate(TEXTS)
    longest = sum(len(translation.tokens) == 3 for translation in translations)
    assert length_counts(translations) == (longest, 6) and longest  # without the blank text
    warn_about_length_limit([(longest, 6), (0, 4)])
    assert caplog.messages[0].startswith(f"{longest} of 10 outputs reached the maximum")
    # The model has no more positions.
    assert tiny_translator(max_length_offset=12, max_length=14).max_subwords == 13


def test_a_text_has_no_silence() -> None:
    [translation] = tiny_translator().translate(["a dog"])
    assert translation.no_speech == ()


def test_a_batch_keeps_the_budget_and_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []

    def counted(model: Any, source: torch.Tensor, beam: int, *more: Any) -> Any:
        sizes.append((len(source), source.numel() * beam))
        return build_step(model, source, beam, *more)

    monkeypatch.setattr(batched_search, "build_step", counted)
    tiny_translator(100, beam_size=2, max_length_offset=1).translate(TEXTS * 6)
    assert sum(rows for rows, _ in sizes) == 36  # without the blank text
    assert all(tokens <= 100 for _, tokens in sizes)
    assert sum(tokens for _, tokens in sizes) > 70 * len(sizes)
    # The parts of a long text share a batch of eight in any case.
    long = " ".join(source for source, _ in PAIRS * 3)
    sizes.clear()
    tiny_translator(3, max_length=24).translate([long])
    assert [rows for rows, _ in sizes] == [8, 4]


def test_a_blank_text_has_a_blank_translation() -> None:
    blanks = ["", "\t", "\u2028", "\u00a0 \r\n"]
    translator = tiny_translator()
    assert translator.translate([*blanks, "a dog"])[:-1] == [BLANK] * len(blanks)
    # SentencePiece's sign for the space is not blank.
    assert translator.translate(["\u2581"])[0].tokens
    with pytest.raises(TypeError, match="not one string"):
        translator.translate("a b")


def test_a_long_text_is_cut_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    translator = tiny_translator(positions="learned", max_length=24, max_length_ratio=1.0)
    text = " ".join(source for source, _ in PAIRS)
    whole, short = translator.translate([text, "a dog ."], attention=True)
    assert len(caplog.messages) == 1 and "23 subwords" in caplog.messages[0]
    parts = translator.translate([source for source, _ in PAIRS])
    assert whole.text == " ".join(part.text for part in parts)
    assert whole.tokens == tuple(token for part in parts for token in part.tokens)
    total = sum(part.nbest[0].log_probability for part in parts)
    assert whole.nbest[0].log_probability == pytest.approx(total, abs=1e-4)
    [source] = tiny_tokenizer().encode_source([text])
    assert whole.attention is not None
    assert whole.attention.shape == (len(whole.tokens), len(source))
    assert short.text == translator.translate(["a dog ."])[0].text
    # A warning names the first line.
    caplog.clear()
    lines = [*["a dog"] * 9, text, text]
    stream = translator.translate_stream(lines, name=lambda index: f"stdin:{index + 1}")
    assert len(list(stream)) == 11
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("stdin:10 and 1 more: ")
    assert caplog.messages[0].endswith("8 parts")


def test_a_line_longer_than_the_training_text_is_split_into_sentences(tmp_path: Path) -> None:
    translator = tiny_translator(max_length=64, max_length_ratio=1.0)
    sentences = [source for source, _ in PAIRS]
    save_translator(translator, tmp_path / "best.ckpt", longest_source=23)
    loaded = Translator.load(tmp_path / "best.ckpt")
    whole, short = loaded.translate([" ".join(sentences), sentences[0]])
    assert whole.text == " ".join(part.text for part in loaded.translate(sentences))
    assert (whole.parts, short.parts) == (4, 1)
    assert (whole.to_json()["parts"], "parts" in short.to_json()) == (4, False)


def test_the_score_of_a_split_text_has_the_coverage_penalty_of_its_parts() -> None:
    translator = tiny_translator(max_length=24, max_length_ratio=1.0, nbest=3, coverage_penalty=0.5)
    sentences = [source for source, _ in PAIRS]
    [whole] = translator.translate([" ".join(sentences)])
    parts = translator.translate(sentences)
    # Without a length penalty, the other summand is the log-probability.
    for candidate, *of_parts in zip(whole.nbest, *(part.nbest for part in parts), strict=True):
        assert candidate.score == pytest.approx(sum(part.score for part in of_parts), abs=1e-3)
        assert candidate.score < candidate.log_probability - 0.1


def test_attention_is_that_of_the_best_candidate() -> None:
    translator = tiny_translator(max_length_ratio=1.0)
    kernels = [m.kernel for m in translator.model.modules() if isinstance(m, MultiHeadAttention)]
    plain = translator.translate(TEXTS)
    mapped = translator.translate(TEXTS, attention=True)
    assert plain == mapped
    assert plain[0].attention is None
    after = [m.kernel for m in translator.model.modules() if isinstance(m, MultiHeadAttention)]
    assert after == kernels
    for translation in mapped:
        if translation is BLANK:
            continue
        weights = translation.attention
        assert weights is not None
        assert (weights >= 0).all()
        assert (weights.sum(1) < 1).all()  # the end of the source has the rest
        values = json.loads(json.dumps(translation.to_json()))
        shape = [len(values["source_tokens"])] * len(values["tokens"])
        assert [len(row) for row in values["attention"]] == shape


def test_every_module_returns_to_its_mode() -> None:
    translator = tiny_translator(dropout=0.5)
    expected = translator.translate(TEXTS)
    translator.model.train()
    translator.model.encoder.eval()
    modes = [module.training for module in translator.model.modules()]
    assert translator.translate(TEXTS) == expected
    assert [module.training for module in translator.model.modules()] == modes
    loss = translator.model(torch.tensor([[5, 3]]), torch.tensor([[2, 5]])).sum()
    loss.backward()  # what was computed in inference mode must not stand in the way
    with torch.no_grad():
        translator.model.projection.weight.fill_(torch.nan)
    with pytest.raises(InputError):
        translator.translate(["a dog"])
    assert [module.training for module in translator.model.modules()] == modes


def test_a_line_end_spelled_by_the_model_does_not_reach_the_text() -> None:
    translator = tiny_translator(tie_embeddings="none", min_length=4)
    newline = tiny_tokenizer().subwords(range(310)).index("<0x0A>")
    with torch.no_grad():
        translator.model.projection.weight.fill_(0)
        translator.model.projection.weight[newline] = 1
        translator.model.decoder.final_norm.bias.fill_(1)
    [translation] = translator.translate(["a dog"])
    assert set(translation.tokens) == {"<0x0A>"}
    assert translation.text.strip(" ") == ""


def test_too_little_memory_changes_no_translation(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = tiny_translator(100_000, beam_size=2, max_length_ratio=1.0)
    expected = [t.text for t in translator.translate(TEXTS)]
    room = 2

    def limited(model: Any, segments: Any, *settings: Any) -> Any:
        if len(segments) > room:
            raise torch.OutOfMemoryError
        return search_batch(model, segments, *settings)

    monkeypatch.setattr(batched_search, "search_batch", limited)
    assert [t.text for t in translator.translate(TEXTS)] == expected
    room = 0
    with pytest.raises(InputError, match=r"out of memory with one sentence of \d+ tokens"):
        translator.translate(TEXTS)


def test_a_stream_equals_a_list_and_reads_one_window_ahead() -> None:
    translator = tiny_translator(batch_tokens=5000, beam_size=1, max_length_offset=2)
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for read in range(1, 61):
            yield TEXTS[read % len(TEXTS)] + "\n" * (read % 2)

    stream = translator.translate_stream(lines())
    first = next(stream)
    assert read == 8
    translations = [first, *stream]
    expected = translator.translate([TEXTS[index % len(TEXTS)] for index in range(1, 61)])
    assert [t.text for t in translations] == [t.text for t in expected]


def test_a_line_keeps_its_tags() -> None:
    line = without_end(with_tags("a dog\r\n", SourceTags("de")))
    assert (line, parse_tags(line)) == ("a dog", SourceTags("de"))


def test_lines_before_an_error_are_translated() -> None:
    def lines() -> Iterator[str]:
        yield "a dog"
        yield "two cats"
        raise InputError("stdin:3: not UTF-8")

    translator = tiny_translator(beam_size=1)
    stream = translator.translate_stream(lines(), attention=True)
    assert [next(stream), next(stream)] == translator.translate(["a dog", "two cats"])
    with pytest.raises(InputError, match="stdin:3"):
        next(stream)
