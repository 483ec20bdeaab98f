"""Placeholders come through any model unchanged."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.helpers.serving.marked import Words, dictionary, options, upper_case
from transformer.serving.batch_translation import (
    Attention,
    Options,
    Sentence,
    SentenceTranslation,
)
from transformer.serving.formats.placeholders import translate_with_placeholders

BACKWARDS = dictionary({}, {count: tuple(reversed(range(count))) for count in range(9)})


def translated(words: Words, text: str) -> tuple[SentenceTranslation, list[str]]:
    """The translation of a sentence with all details, and the sentences that the model saw."""
    seen: list[str] = []
    attention = Attention(("a",), ("b",), torch.ones(1, 1))

    def translate(asked: Options, sentences: Sequence[Sentence]) -> list[SentenceTranslation]:
        translations = []
        for sentence in sentences:
            seen.append(sentence.text)
            target, links = words(sentence.text.split())
            translations.append(
                SentenceTranslation(
                    sentence.text,
                    " ".join(target),
                    alternatives=("X",),
                    links=tuple(links),
                    confidence=0.5,
                    attention=attention if asked.attention else None,
                )
            )
        return translations

    asked = replace(options(), links=True, attention=True)
    [translation] = translate_with_placeholders(asked, [Sentence(text)], translate)
    return translation, seen


@pytest.mark.parametrize(
    ("source", "translation", "links"),
    [
        ("you have {count} new mails", "MAILS NEW HAVE {count} YOU", "40 31 12 23 04"),
        ("dear {name}, hello", "HELLO {name}, DEAR", "20 11 02"),
        ("see https://a.org/x?y={z}&b=1, please", "PLEASE https://a.org/x?y={z}&b=1, SEE", None),
        ("(%1$s) of {a}{b}", "OF (%1$s) {a}{b}", None),
        ("${x}px wide", "${x}px WIDE", None),
        ("{x}s wide", "{x}s WIDE", None),
        ("%(n)d%% of 50%, not 20 %ige", "%(n)d%% %IGE 20 NOT 50%, OF", None),
    ],
)
def test_placeholders_come_through(source: str, translation: str, links: str | None) -> None:
    found, seen = translated(BACKWARDS, source)
    assert found.text == translation
    assert seen[0] == source and len(seen) == 2
    assert found.word_confidence is not None and found.attention is None
    assert len(found.word_confidence) == len(found.text.split())
    if links is not None:
        assert found.links is not None
        assert sorted(found.links) == sorted((int(link[0]), int(link[1])) for link in links.split())


def test_a_model_is_asked_again_only_where_one_is_lost() -> None:
    def copying(words: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
        target, links = upper_case(words)
        return [s if "{" in s else t for s, t in zip(words, target, strict=True)], links

    found, seen = translated(copying, "hello {name}")
    assert (found.text, found.alternatives, seen) == ("HELLO {name}", (), ["hello {name}"])
    assert found.attention is not None
    found, seen = translated(upper_case, "100% of it: a@b")
    assert (found.text, found.alternatives, len(seen)) == ("100% OF IT: A@B", ("X",), 1)
    # A model that writes placeholders of its own.
    found, _ = translated(lambda words: (["{name}"] * 2, []), "hello {name}")
    assert (found.text, found.links) == ("hello {name}", ())
    found, _ = translated(upper_case, "{name}: {count}")
    assert found.text == "{name}: {count}"
