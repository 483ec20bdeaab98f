"""Requests in JSON lines, violated constraints, and the terms of a glossary."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, wordy_translator
from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.data.tokenization.tags import SourceTags, parse_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import Glossary, LinkedWords
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.translator import Translator
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import TokenizerConfig


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"mist": []}, "f:3: request.mist is not a setting of request (did you mean must?)"),
        ({"must": "Haus"}, "f:3: request.must='Haus' must be a list"),
        ({"never": ["a", 1]}, "f:3: request.never=1 must be a text"),
        ({"prefix": None}, "f:3: request.prefix=null must be a text"),
        ({"text": 1}, "f:3: request.text=1 must be a text"),
        ({"to": 3}, "f:3: request.to=3 must be a text or null"),
        ({"must": [" "]}, "f:3: a phrase of must is empty"),
        ({"must": ["der Hund"], "never": ["der"]}, "f:3: must 'der Hund' contains 'der'"),
        ({"prefix": "In der", "never": ["der"]}, "f:3: prefix 'In der' contains 'der'"),
    ],
)
def test_wrong_request_is_one_line(values: dict[str, object], error: str) -> None:
    with pytest.raises(InputError, match=re.escape(error)):
        Request.parse(json.dumps({"text": "a"} | values), "f:3")


def test_a_line_that_is_no_request_is_one_error() -> None:
    lines = ["", "ein Hund", '"Hund"', "[1]", "{}", "[" * 9**5, "9" * 9**5]
    # Half of a character.
    lines += ['{"text": "\\ud800"}', '{"text": "a", "must": ["\\udfff"]}']
    for line in lines:
        with pytest.raises(InputError, match=r'^f:7: .*write {"text": "…"}, one object a line$'):
            Request.parse(line, "f:7")


def test_request_has_constraints_and_tags() -> None:
    assert Request.parse('{"text": "a dog"}', "f:1") == Request("a dog", None)
    request = Request.parse('{"never": ["x"], "text": "", "prefix": "y", "must": ["z"]}', "f:1")
    assert request == Request("", Constraints("y", ("z",), ("x",)))
    text = Request.parse('{"text": "a dog", "to": "de", "tag": "web"}', "f:1").text
    assert text == "a dog" and parse_tags(text) == SourceTags("de", "web")
    assert parse_tags(Request.parse('{"text": "a dog", "to": null}', "f:1").text) == SourceTags()


def test_unmet_constraints() -> None:
    constraints = Constraints("Der", ("Hund", "läuft"), ("Katze",))
    assert constraints.unmet("Der Hund läuft.") == ()
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


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (("user manual", "Anleitung"), ("Handbuch",)),
        (("manual", "Anleitung"), ("Handbuch", "Schaltgetriebes")),
        (("user manual", "Handbuch"), ()),  # it is the required phrase
        (("user manual", "neues Handbuch"), ()),  # or a part of it
        (("of", "von"), ()),  # without a link
        (("car", "Auto"), ()),
    ],
)
def test_the_words_of_the_model_are_those_linked_to_the_term(
    term: tuple[str, str], words: tuple[str, ...]
) -> None:
    assert LINKED.model_words([term]) == words
    # A word that occurs elsewhere, too, stays allowed.
    twice = LinkedWords(["bank", "bench"], ["Bank", "Bank"], frozenset({(0, 0), (1, 1)}))
    assert twice.model_words([("bank", "Geldhaus")]) == ()


def test_of_terms_within_each_other_the_longer_one_holds() -> None:
    entries = {"dog": "Hund", "guide dog": "Blindenhund", "dog food": "Futter", "C++ (old)": "C"}
    glossary = Glossary(entries)

    def required(text: str) -> tuple[str, ...]:
        asked = glossary.constraints(text)
        return () if asked is None else asked.with_terms_required().must

    assert required("A guide  dog.") == ("Blindenhund",)
    assert required("a dog, a guide dog") == ("Hund", "Blindenhund")
    assert required("the guide dog food in C++ (old)") == ("Blindenhund", "C")  # each word once
    # All terms may stand in a request.
    asked = Constraints(terms=tuple(entries.items())).on_source("a guide dog")
    assert asked == glossary.constraints("a guide dog")
    # Two translations of one phrase are both asked for.
    both = Constraints(terms=(("dog", "Hund"), ("dog", "Köter")))
    assert both.on_source("a dog") == both


def test_links_are_the_largest_weights_in_both_directions() -> None:
    tokenizer = tiny_tokenizer()
    source, target = tokenizer.encode_source(["a dog ."])[0], tokenizer.encode_target(["hund ."])[0]
    weights = torch.full((len(target), len(source)), 0.01)
    weights[0, -2:] = 0.5
    found = LinkedWords.from_attention(source, target, weights, tokenizer)
    assert (found.source, found.target) == (["a", "dog", ""], ["hund", ""])
    assert all(0 <= s < 3 and 0 <= t < 2 for s, t in found.links)


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


def test_a_term_may_be_a_word_that_the_model_does_not_know() -> None:
    config = TokenizerConfig(algorithm="words", vocab_size=None)
    tokenizer = Tokenizer.train(config, lambda: PAIRS)
    sizes = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
    }
    search = SearchConfig(beam_size=4, max_length_ratio=1.0)
    translator = Translator(tiny_transformer(**sizes), tokenizer, search, 200)
    asked = Constraints(terms=(("poodle", "hund"),))
    [found] = translator.translate(["a poodle runs ."], [asked])
    assert found.unmet == () and occurs("hund", found.text)


def test_terms_of_a_file_and_of_a_request(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_text("dog\tKöter\nred dog\troter Hund\n")
    glossary = Glossary.read(file)
    assert glossary.constraints("A dogma.") is None
    assert glossary.constraints("A dog.") == Constraints(terms=(("dog", "Köter"),))
    request = Request.parse('{"text": "a dog", "terms": {"dog": "Köter"}}', "stdin:1")
    assert request.constraints == Constraints(terms=(("dog", "Köter"),))
    file.write_text("dog\n")
    with pytest.raises(InputError, match=r"terms\.tsv:1: write SOURCE<TAB>TARGET"):
        Glossary.read(file)
