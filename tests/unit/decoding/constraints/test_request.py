"""Requests in JSON lines, violated constraints, and the terms of a glossary."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from tests.helpers.decoding.translators import wordy_translator
from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.data.tokenization.tags import SourceTags, parse_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import Glossary, LinkedWords
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import Algorithm, TokenizerConfig


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"mist": []}, "f:3: request.mist is not a setting of request (did you mean must?)"),
        ({"must": "Haus"}, "f:3: request.must='Haus' must be a list"),
        ({"must": [" "]}, "f:3: a phrase of must is empty"),
        ({"prefix": "In der", "never": ["der"]}, "f:3: prefix 'In der' contains 'der'"),
        ({"terms": {"a": "b"}, "never": ["b"]}, "f:3: terms 'b' contains 'b'"),
    ],
)
def test_wrong_request_is_one_line(values: dict[str, object], error: str) -> None:
    with pytest.raises(InputError, match=re.escape(error)):
        Request.parse(json.dumps({"text": "a"} | values), "f:3")


def test_a_line_that_is_no_request_is_one_error() -> None:
    half_of_a_character = '{"text": "\\ud800"}'
    for line in ("ein Hund", "[1]", "{}", "[" * 9**5, half_of_a_character):
        with pytest.raises(InputError, match=r'^f:7: .*write {"text": "…"}, one object a line$'):
            Request.parse(line, "f:7")


def test_request_has_constraints_and_tags() -> None:
    request = Request.parse('{"never": ["x"], "text": "", "prefix": "y", "must": ["z"]}', "f:1")
    assert request == Request("", Constraints("y", ("z",), ("x",)))
    lines = Request.parse('{"text": "a\\ndog\\r\\nruns"}', "f:1")
    assert lines == Request("a dog runs")
    text = Request.parse('{"text": "a dog", "to": "de", "tag": "web"}', "f:1").text
    assert text == "a dog" and parse_tags(text) == SourceTags("de", "web")


def test_unmet_constraints() -> None:
    constraints = Constraints("Der", ("Hund", "läuft"), ("Katze",))
    assert constraints.unmet("Derselbe Hund läuft.") == ()
    assert constraints.unmet("Katze, hundert Hunde") == (
        "prefix: Der",
        "must: Hund",
        "must: läuft",
        "never: Katze",
    )
    assert Constraints("Der ").unmet("Derselbe") == ("prefix: Der ",)
    assert Constraints("Der ").unmet("Der") == ()


LINKED = LinkedWords(
    ["The", "user", "manual", "of", "the", "manual", "gear"],
    ["Das", "Handbuch", "des", "Schaltgetriebes", "ist", "das"],
    frozenset({(1, 1), (2, 1), (5, 3), (6, 3), (0, 0)}),
)


def test_the_words_of_the_model_are_those_linked_to_the_term() -> None:
    assert LINKED.model_words([("user manual", "Anleitung")]) == ("Handbuch",)
    assert LINKED.model_words([("manual", "Anleitung")]) == ("Handbuch", "Schaltgetriebes")
    # The required phrase has it, or no word is linked.
    assert LINKED.model_words([("user manual", "neues Handbuch"), ("of", "von")]) == ()
    # A word that occurs elsewhere, too, stays allowed.
    twice = LinkedWords(["bank", "bench"], ["Bank", "Bank"], frozenset({(0, 0), (1, 1)}))
    assert twice.model_words([("bank", "Geldhaus")]) == ()


@pytest.mark.parametrize("algorithm", ["char", "words"])
def test_a_term_of_a_script_without_spaces_is_linked_by_its_own_subwords(algorithm: str) -> None:
    source = "请阅读PDF文档" if algorithm == "char" else "请 阅读 PDF 文档"
    config = TokenizerConfig(
        algorithm=cast(Algorithm, algorithm), vocab_size=None, joint=False, target="words"
    )
    target = "Please read the PDF documentation"
    tokenizer = Tokenizer.train(config, lambda: [(source, target)])
    [(row, written)] = tokenizer.encode_pairs([(source, target)])
    # Each word of the target looks at its source, and "the" at the end.
    partners = {"char": [[0], [1, 2], [], [3, 4, 5], [6, 7]], "words": [[0], [1], [], [2], [3]]}
    weights = torch.zeros(len(written), len(row))
    for word, subwords in enumerate(partners[algorithm]):
        weights[word, subwords] = 0.9 / max(1, len(subwords))
    linked = LinkedWords.from_attention(row, written, weights, tokenizer)
    for term, word in (("文档", "documentation"), ("阅读", "read"), ("PDF", "PDF"), ("档案", None)):
        assert linked.model_words([(term, "x")]) == (() if word is None else (word,))
    # The link of a longer word says nothing of its part.
    assert linked.model_words([("文", "x")]) == (("documentation",) if algorithm == "char" else ())


def test_of_terms_within_each_other_the_longer_one_holds() -> None:
    entries = {"dog": "Hund", "guide dog": "Blindenhund", "dog food": "Futter", "C++ (old)": "C"}
    glossary = Glossary(entries)

    def required(text: str) -> tuple[str, ...]:
        asked = glossary.constraints(text)
        return () if asked is None else asked.with_terms_required().must

    assert required("A guide  dog.") == ("Blindenhund",)
    assert required("a dog, a guide dog") == ("Hund", "Blindenhund")
    assert required("the guide dog food in C++ (old)") == ("Blindenhund", "C")  # each word once
    # Two translations of one phrase are both asked for.
    both = Constraints(terms=(("dog", "Hund"), ("dog", "Köter")))
    assert both.on_source("a dog") == both


def test_the_word_of_the_model_is_forbidden_beside_the_required_one() -> None:
    search = SearchConfig(beam_size=4, max_length_ratio=1.0)
    translator = replace(wordy_translator(), search=search)
    asked: list[Constraints | None] = []

    def watched(segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        asked.extend(segment.constraints for segment in segments)
        return translator.searcher(segments)

    watching = replace(translator, engine=lambda _: watched)
    terms = (("sleep", "buch"), ("bird", "katze"))
    texts = ["two cats sleep .", "the dog sees a cat ."]
    with_term, without_term = watching.translate(texts, [Constraints(terms=terms)] * 2)
    # The free search of the first text, then the search of both.
    free, required, none = asked
    assert free is None and none is None
    assert required is not None and required.must == ("buch",) and required.never
    assert with_term.unmet == () and occurs("buch", with_term.text)
    assert not any(occurs(word, with_term.text) for word in required.never)
    assert without_term.unmet is None
    assert without_term.text == translator.translate(texts[1:])[0].text


def test_terms_of_a_file_and_of_a_request(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("dog\tKöter\nred dog\troter Hund\n")
    glossary = Glossary.read(file)
    assert glossary.constraints("A dogma.") is None
    assert glossary.constraints("A dog.") == Constraints(terms=(("dog", "Köter"),))
    many = Glossary({f"n{number}": f"N{number}" for number in range(20)})
    asked = many.constraints(" ".join(many.entries))
    assert asked is not None and dict(asked.terms) == many.entries
    first = many.constraints(" ".join(many.entries), most=8)
    assert first is not None and first.terms == asked.terms[:8]
    request = Request.parse('{"text": "a dog", "terms": {"dog": "Köter"}}', "stdin:1")
    assert request.constraints == Constraints(terms=(("dog", "Köter"),))
    file.write_text("dog\n")
    with pytest.raises(InputError, match=r"terms\.tsv:1: write SOURCE<TAB>TARGET"):
        Glossary.read(file)
    file.write_text("dog\tKöter\ndog\tKöter\ndog\tHund\n")
    with pytest.raises(InputError, match=r"terms\.tsv:3: 'dog' is 'Köter' above"):
        Glossary.read(file)
