"""The verb ``attention``: a sentence becomes a view, and heads are measured over a corpus."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_translator
from transformer.__main__ import main
from transformer.cli.config import compose_config, typed_sentences
from transformer.commands.attention import attention_view, encoded_pair
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits
from transformer.data.text.word_alignment import word_count
from transformer.decoding.alignment import Aligner, align
from transformer.evaluation.alignment_error import count_links
from transformer.evaluation.attention_heads import EncodedPair, corpus_pairs, survey
from transformer.model.head_masks import HeadName
from transformer.settings.commands import AttentionConfig
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig

TEXT = [*PAIRS, ("dog and dog", "hund und hund")]


def corpus(folder: Path, links: list[str] | None = None) -> DataConfig:
    """The corpus of a run over ``TEXT``; all but one are held out for validation."""
    lines = "".join(f"{source}\t{target}\n" for source, target in TEXT)
    (folder / "train.tsv").write_text(lines)
    if links is not None:
        (folder / "train.links").write_text("".join(f"{line}\n" for line in links))
    return DataConfig(
        corpus="files",
        train=str(folder / "train.tsv"),
        validation_size=4,
        test_size=0,
        deduplicate=False,
        workers=0,
        cache=str(folder),
        alignment=None if links is None else str(folder / "train.links"),
        max_left_out=1.0,
    )


def config(folder: Path, text: str, target: str | None = None, **keys: Any) -> AttentionConfig:
    checkpoint = folder / "best.ckpt"
    checkpoint.touch()
    sentences: dict[str, Any] = {"text": text, "target": target}
    return AttentionConfig(checkpoint=str(checkpoint), **{"sentences": 3, **sentences, **keys})


def test_the_error_rate_of_a_head_is_that_of_its_links(tmp_path: Path) -> None:
    links = [" ".join(f"{n}-{n}" for n in range(min(map(word_count, pair)))) for pair in TEXT]
    data = corpus(tmp_path, links)
    aligner = Aligner(HeadName("cross", 1, 2), near_best=0.8)
    translator = tiny_translator(batch_tokens=40, aligner=aligner)
    pairs = corpus_pairs(translator, data, "validation", 4)
    split = find_splits(data)["validation"]
    proposed = align(
        translator.model,
        translator.tokenizer,
        list(split),
        head=aligner.head,
        near_best=aligner.near_best,
    )
    gold = list(split.word_links())
    assert len(proposed) == len(gold) == len(pairs) == 4
    counts = count_links((mine, *theirs) for mine, theirs in zip(proposed, gold, strict=True))
    cross = survey(translator, pairs)["cross"]
    assert cross[1][2].alignment_error == pytest.approx(counts.error_rate)
    assert 0 < counts.error_rate < 1
    # It does not depend on the batches.
    alone = survey(tiny_translator(batch_tokens=1, aligner=aligner), pairs)["cross"]
    for row, others in zip(cross, alone, strict=True):
        for head, other in zip(row, others, strict=True):
            assert head.to_json() == pytest.approx(other.to_json(), abs=1e-5)
    assert len({head.alignment_error for row in cross for head in row}) > 1


def test_the_view_of_a_translation_and_of_a_given_target(tmp_path: Path) -> None:
    translator = tiny_translator()
    text = PAIRS[0][0]
    (translation,) = translator.translate([text])
    run = RunConfig(data=corpus(tmp_path))
    view = attention_view(config(tmp_path, text), translator, run)
    assert (view.source, view.target, view.forced) == (text, translation.text, False)
    assert (view.sentences, view.measured) == (3, "3 sentence pairs of the run's validation text")
    encoder, decoder, cross = view.kinds
    assert list(encoder.keys) == [*translation.source_tokens, "</s>"]
    assert list(decoder.keys) == ["<s>", *translation.tokens]
    assert list(cross.queries) == [*translation.tokens, "</s>"]
    for kind in view.kinds:
        assert kind.weights.shape == (2, 4, len(kind.queries), len(kind.keys))
        rows = kind.weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows))
    text, target = PAIRS[1]
    view = attention_view(config(tmp_path, text, target, sentences=0), translator, run)
    assert (view.target, view.forced, view.sentences) == (target, True, 1)
    assert "".join(view.kinds[2].queries) == "\u2581" + target.replace(" ", "\u2581") + "</s>"


def test_a_blank_or_endless_sentence_or_a_wrong_key_is_named(tmp_path: Path) -> None:
    endless = "a dog " * 40
    for text, target, message in (
        (" ", None, "text= has 0 subwords; give a sentence"),
        (endless, None, r"text= has \d+ subwords; .* positions of 64"),
        ("a", endless, r"target= has \d+ subwords; .* positions of 64"),
    ):
        with pytest.raises(InputError, match=message):
            encoded_pair(tiny_translator(positions="learned"), text, target)
    # A source may have more of them than a target.
    longer = tiny_translator(positions="learned", max_source_length=500)
    assert len(encoded_pair(longer, endless, "ein hund").source) > 64
    # Only learned positions bound a sentence.
    assert len(encoded_pair(tiny_translator(), endless, "ein hund").source) > 64
    run = RunConfig(data=corpus(tmp_path))
    with pytest.raises(InputError, match="sentences=-1 must be at least 0"):
        attention_view(config(tmp_path, "a dog", sentences=-1), tiny_translator(), run)
    with pytest.raises(InputError, match="there is no split=tset; choose train or validation"):
        attention_view(config(tmp_path, "a dog", split="tset"), tiny_translator(), run)


def test_a_source_with_several_targets_is_measured_once(tmp_path: Path) -> None:
    rows = [{"en": "a dog", "de": ["ein hund", "der hund"]}, {"en": "a cat", "de": "eine katze"}]
    (tmp_path / "other.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sides = {"source": "en", "target": "de", "validation": str(tmp_path / "other.jsonl")}
    translator = tiny_translator()
    pairs = corpus_pairs(translator, replace(corpus(tmp_path), **sides), "validation", 2)
    assert [pair.target for pair in pairs] == translator.tokenizer.encode_target(
        ["ein hund", "eine katze"]
    )


def test_blank_and_long_pairs_are_left_out(tmp_path: Path) -> None:
    data = replace(corpus(tmp_path), validation=str(tmp_path / "other.tsv"))
    (tmp_path / "other.tsv").write_text(f"\tx\n{'a dog ' * 40}\tx\na dog\tein hund\n")
    assert len(corpus_pairs(tiny_translator(), data, "validation", 200)) == 2
    translator = tiny_translator(positions="learned")
    pairs = corpus_pairs(translator, data, "validation", 200)
    encode = translator.tokenizer
    source, target = encode.encode_source(["a dog"]), encode.encode_target(["ein hund"])
    assert pairs == [EncodedPair(source[0], target[0], texts=("a dog", "ein hund"))]
    with pytest.raises(InputError, match="no sentence pair"):
        corpus_pairs(translator, data, "validation", 2)
    longer = tiny_translator(positions="learned", max_source_length=500)
    assert len(corpus_pairs(longer, data, "validation", 200)) == 2


def test_a_sentence_is_text_with_any_signs(capsys: pytest.CaptureFixture[str]) -> None:
    for sentence in ("A man, (red)?", "${oc.env:HOME}", "null"):
        arguments = ["checkpoint=x", f"text={sentence}", "target=null"]
        assert typed_sentences(arguments) == {"text": sentence}
        config = compose_config("attention", arguments)
        assert (config.text, config.target) == ("given", None)
    assert typed_sentences(["text=a\udcff"]) == {"text": "a\ufffd"}
    assert main(["attention", "checkpoint=x"]) == 2
    assert capsys.readouterr() == ("", "error: attention needs a value for text=\n")
