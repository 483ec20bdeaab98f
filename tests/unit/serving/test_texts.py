"""Texts are cut and joined without a loss; languages are found by code, name and text."""

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers.decoding.translators import tiny_translator
from transformer.common.errors import InputError
from transformer.common.language_names import language_name
from transformer.serving.access import Access, Client, read_keys
from transformer.serving.batch_translation import SentenceTranslation, TextTranslation
from transformer.serving.interfaces.deepl import parse_entries
from transformer.serving.languages import (
    Detector,
    Direction,
    Directions,
    trained_directions,
)
from transformer.serving.sentences import Part, Splitting, plain_blanks, split_sentences
from transformer.settings.data import CorpusConfig, DataConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig

TEXT = "Hello there.  How are you?\n\n\tMr. Smith left."


@pytest.mark.parametrize(
    ("splitting", "sentences"),
    [
        ("sentences", ["Hello there.", "How are you?", "Mr. Smith left."]),
        ("none", [TEXT]),
        ("lines", ["Hello there.  How are you?", "Mr. Smith left."]),
    ],
)
def test_a_text_is_cut_where_asked(splitting: Splitting, sentences: list[str]) -> None:
    parts = split_sentences(TEXT, "en", splitting)
    assert [part.sentence for part in parts] == sentences
    long = split_sentences("word " * 500 + "a" * 2500, "en", splitting)
    sizes = [5000] if splitting == "lines" else [999, 999, 499, 1000, 1000, 500]
    assert [len(part.sentence) for part in long] == sizes


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        (
            "en",
            ["See https://a.org/Who?Id=1&B=2.", "Or www.Example.Com!", "It is https://x.org/#!/y."],
        ),
        ("en", ["Write {{ Dr. No }}, %(name)s!", "{name} wrote to a@b.org."]),
        ("zh", ["见 https://a.org/?Id=1。", "再见https://b.org/c。", "好！"]),
    ],
)
def test_no_sentence_ends_inside_a_url_or_a_placeholder(
    language: str, sentences: list[str]
) -> None:
    text = ("" if language == "zh" else " ").join(sentences)
    parts = split_sentences(text, language, "sentences")
    assert [part.sentence for part in parts] == sentences


@given(text=st.text(alphabet="aB.?! \n\r\t\u2028\u00a0。", max_size=60))
@example("This is plan B\u00a0. The dog runs.")
@example("https://a.org/?B=1 {a.B}")
def test_any_text_is_cut_without_loss(text: str) -> None:
    for splitting in get_args(Splitting):
        parts = split_sentences(text, "en", splitting)
        assert "".join(part.blanks + part.sentence for part in parts) == text
        assert all(part.sentence == part.sentence.strip() for part in parts)


@pytest.mark.parametrize(
    ("sources", "translations", "text"),
    [
        (["很好。", "走吧。"], ["Good.", "Let us go."], "Good. Let us go."),
        (["Good.", "Bye."], ["很好。", "再见。"], "很好。再见。"),
        (["a.", "b."], ["A.", "B."], "A.B."),
        # An empty translation, and punctuation alone, get no space.
        (["很好。", "走吧。"], ["", "Let us go."], "Let us go."),
        (["很好。", "走。", "再见。"], ["Good.", "", "Bye."], "Good. Bye."),
        (["很好。", "！！"], ["Good.", "!!"], "Good.!!"),
    ],
)
def test_sentences_without_blanks_get_spaces_in_a_script_with_blanks(
    sources: list[str], translations: list[str], text: str
) -> None:
    parts = tuple(
        (Part("", source), SentenceTranslation(source, translation))
        for source, translation in zip(sources, translations, strict=True)
    )
    assert TextTranslation(parts).text == text


def test_blanks_in_a_sentence_with_letters_become_spaces() -> None:
    assert plain_blanks("a\u00a0b\tc") == "a b c" and plain_blanks("5\u00a0%") == "5\u00a0%"
    # A sentence has line ends where a client of DeepL asks for it.
    parts = split_sentences("A dog\nruns.\nA cat\r\nsleeps.", "en", "punctuation")
    assert [plain_blanks(part.sentence) for part in parts] == ["A dog runs.", "A cat sleeps."]
    assert plain_blanks("5\n6") == "5\n6"


def test_languages_by_code_alias_variant_and_run() -> None:
    model = tiny_translator()
    pairs = [("en", "zh-hans"), ("en", "de"), ("pt-br", "en")]
    directions = Directions(Direction(source, target, model) for source, target in pairs)
    targets = directions.targets
    asked = ("ZH", "de-AT", "EN-us", "zh_Hans", "fr", "")
    found = [directions.code(code, targets) for code in asked]
    assert found == ["zh-hans", "de", "en", "zh-hans", None, None]
    assert language_name("zh-hans") == "Chinese (simplified)"
    assert language_name("de-at") == "German (AT)"
    with pytest.raises(InputError, match=r"en-de.*languages="):
        Directions([*directions.all, directions.all[1]])

    config = RunConfig(data=DataConfig(source="EN", target="de"))
    [direction] = trained_directions(model, config)
    assert (direction.source, direction.target) == ("en", "de")
    [direction] = trained_directions(model, config, "pt-br-en")
    assert (direction.source, direction.target) == ("pt-br", "en")
    corpora = {"one": CorpusConfig(source="fr"), "two": CorpusConfig()}
    found = trained_directions(model, replace(config, data=replace(config.data, corpora=corpora)))
    assert [(direction.source, direction.target) for direction in found] == [
        ("en", "de"),
        ("fr", "de"),
    ]
    for metric, sentences in (("bleu", True), ("rougel", False)):
        metrics = MetricsConfig(test=(metric,), validation=(metric,), choose=metric)
        run = replace(config, metrics=metrics)
        for asked in (None, True, False):
            [direction] = trained_directions(model, run, sentences=asked)
            assert direction.sentences is (sentences if asked is None else asked)
    with pytest.raises(InputError, match="languages=english"):
        list(trained_directions(model, config, "english"))
    wide = direction.wider(3)
    assert wide is direction.wider(3)
    assert wide.translator.search.nbest == 3


@pytest.mark.parametrize(
    ("search", "wide"),
    [
        ({"algorithm": "sampling", "top_p": 0.9, "temperature": 0.7}, ("beam", 4, 4)),
        ({"algorithm": "diverse", "beam_size": 6, "groups": 3, "diversity": 0.5}, ("beam", 6, 4)),
        ({"algorithm": "mbr", "beam_size": 1, "candidates": 8, "epsilon": 0.02}, ("mbr", 1, 4)),
        ({"algorithm": "mbr", "beam_size": 1, "candidates": 3}, ("mbr", 1, 3)),
    ],
)
def test_every_search_has_alternatives(search: dict[str, Any], wide: tuple[str, int, int]) -> None:
    found = Direction("en", "de", tiny_translator(**search)).wider(4).translator.search
    assert (found.algorithm, found.beam_size, found.nbest) == wide
    if found.algorithm == "mbr":
        assert replace(found, nbest=1) == tiny_translator(**search).search


def test_the_language_of_a_text_is_detected() -> None:
    english, german = "This is certainly an English sentence.", "Das ist ein deutscher Satz."
    for codes in (["en", "de-at"], ["deu", "eng-latn"]):
        both = Detector(codes)
        found = [both.detect(text)[0].language for text in (english, german)]
        assert sorted(found) == sorted(codes) and found[0].startswith("en")
        assert both.detect(english)[0].confidence > 99
    assert both.detect("12 :-) 5") == []
    alone = Detector(["eng-latn"])
    assert [detected.language for detected in alone.detect(german)] == ["eng-latn"]
    assert alone.detect(english)[0].confidence > 90
    assert alone.detect(german)[0].confidence < 5
    assert alone.detect("12 :-) 5") == [("eng-latn", 0.0)]


def test_entries_of_a_glossary_are_parsed() -> None:
    assert parse_entries('dog\tHund\n"cat\tKatze\n', "tsv") == {"dog": "Hund", '"cat': "Katze"}
    assert parse_entries('"red dog",Hund,en,de\n', "csv") == {"red dog": "Hund"}
    for wrong in ("dog", "dog\t ", "dog\t" + "d" * 101):
        with pytest.raises(InputError, match="no tsv of SOURCE and TARGET"):
            parse_entries(wrong, "tsv")


def test_keys_are_read_and_their_requests_counted(tmp_path: Path) -> None:
    secret = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    (tmp_path / "keys").write_text(f"# clients\n\nanna {secret} requests=2\nbob {'0' * 64}  -\n")
    clients = read_keys(tmp_path / "keys")
    assert clients == [Client("anna", secret, 2), Client("bob", "0" * 64)]
    now = 0.0
    access = Access(clients, 1, clock=lambda: now)
    anna = access.client("secret")
    assert anna == clients[0] and access.client("Secret") is None
    assert [access.admits(anna, "here", 1) for _ in range(3)] == [True, True, False]
    assert [access.admits(None, where, 1) for where in ("x", "x", "y")] == [True, False, True]
    now = 31.0
    assert [access.admits(anna, "here", 1) for _ in range(2)] == [True, False]
    # What is more than a minute's worth uses up minutes to come.
    now = 120.0
    assert [access.admits(anna, "here", 5), access.admits(anna, "here", 1)] == [True, False]
    # Of more addresses than are counted, the one seen longest ago is forgotten.
    access = Access(None, 1, max_counted=2, clock=lambda: now)
    assert [access.admits(None, where, 1) for where in "xyzzx"] == [True, True, True, False, True]
    for text in ("anna secret", f"anna {secret} requests=0"):
        (tmp_path / "keys").write_text(text)
        with pytest.raises(InputError, match="keys:1: not NAME SHA256"):
            read_keys(tmp_path / "keys")
