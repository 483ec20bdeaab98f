"""A term of a glossary replaces the model's own word."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, wordy_translator
from tests.helpers.model.models import tiny_transformer
from transformer.common.errors import InputError
from transformer.data.text.phrases import occurs
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.constraints.terms import Glossary, LinkedWords
from transformer.decoding.long_inputs import Segment
from transformer.decoding.search.search import Hypothesis
from transformer.decoding.translator import Translator
from transformer.settings.decoding import SearchConfig
from transformer.settings.tokenizer import TokenizerConfig

LINKED = LinkedWords(
    ["The", "user", "manual", "of", "the", "manual", "gear"],
    ["Das", "Handbuch", "des", "Schaltgetriebes", "ist", "das"],
    frozenset({(1, 1), (2, 1), (5, 3), (6, 3), (0, 0)}),
)


@pytest.mark.parametrize(
    ("term", "own"),
    [
        (("user manual", "Anleitung"), ("Handbuch",)),
        (("manual", "Anleitung"), ("Handbuch", "Schaltgetriebes")),
        (("user manual", "Handbuch"), ()),  # it is the required phrase
        (("user manual", "neues Handbuch"), ()),  # or a part of it
        (("of", "von"), ()),  # without a link
        (("car", "Auto"), ()),
    ],
)
def test_own_words_are_those_linked_to_the_term(
    term: tuple[str, str], own: tuple[str, ...]
) -> None:
    assert LINKED.model_words([term]) == own


def test_a_word_that_occurs_elsewhere_stays_allowed() -> None:
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


def test_the_own_word_is_forbidden_beside_the_required_one() -> None:
    translator = wordy_translator()
    search = Translator(
        translator.model,
        translator.tokenizer,
        translator.search.__class__(beam_size=4, max_length_ratio=1.0),
        200,
    )
    asked: list[Constraints | None] = []

    def watched(segments: Sequence[Segment]) -> list[list[Hypothesis]]:
        asked.extend(segment.constraints for segment in segments)
        return search.searcher(segments)

    watching = replace(search, engine=lambda _: watched)
    terms = (("dog", "buch"), ("bird", "katze"))
    texts = ["the dog sees a cat .", "two cats sleep ."]
    found, other = watching.translate(texts, [Constraints(terms=terms)] * 2)
    free, _, constraints, without = (*asked[:2], *asked[-2:])
    assert free is None and without is None
    assert constraints is not None and constraints.must == ("buch",)
    assert found.unmet == () and occurs("buch", found.text)
    assert not any(occurs(word, found.text) for word in constraints.never)
    assert other.unmet is None and other.text == search.translate(texts[1:])[0].text


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
