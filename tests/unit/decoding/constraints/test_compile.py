"""Searches with prefixes and forbidden phrases, against brute force over all texts."""

import itertools
import math
import re
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.helpers.decoding.steps import RecurrentStep, search_config
from tests.helpers.decoding.tiny_language import (
    LIMIT,
    PIECES,
    SEEDS,
    batch_text,
    best,
    tiny_vocabulary,
)
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from transformer.data.text.phrases import occurs
from transformer.decoding.batched_search import SEARCHES
from transformer.decoding.constraints import phrase_automaton
from transformer.decoding.constraints.compile import CompiledConstraints, ConstrainedStep
from transformer.decoding.constraints.phrase_automaton import PhraseAutomaton, Vocabulary, spell
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.beam import beam_search
from transformer.decoding.search.sampling import sample_search
from transformer.decoding.translator import Translator
from transformer.settings.tokenizer import EOS


def forbidding(phrases: list[str], beam: int, sentences: int) -> ConstrainedStep:
    automaton = PhraseAutomaton([[spell(phrase) for phrase in phrases]], tiny_vocabulary())
    step = RecurrentStep(SEEDS[:sentences], beam, len(PIECES))
    no_prefix = torch.empty(sentences, 0, dtype=torch.long)
    limits = torch.full((sentences,), LIMIT)
    never = (automaton, automaton.starts[:1].expand(sentences))
    return ConstrainedStep(step, CompiledConstraints(no_prefix, None, never, None), limits, beam)


def beginning(prefixes: list[list[int]], beam: int, limit: int = LIMIT) -> ConstrainedStep:
    """The subwords of each prefix, padded with -1."""
    return ConstrainedStep(
        RecurrentStep(SEEDS[: len(prefixes)], beam, len(PIECES)),
        CompiledConstraints(torch.tensor(prefixes), None, None, None),
        torch.full((len(prefixes),), limit),
        beam,
    )


@pytest.mark.parametrize(
    ("phrase", "text", "there"),
    [
        ("der", "Der und der", True),
        ("der", "wieder", False),
        ("der", "der,wieder", True),
        ("der", "wieder der.", True),
        ("Haus", "das haus", False),
        ("das  Haus", "nur das \t Haus.", True),
        ("!", "Halt!", True),
        ("(der", "x(der)", True),
        ("straße", "Hauptstraße", False),
        ("猫", "黒猫が", True),
        ("caf\u00e9", "cafe\u0301s cafe\u0301", True),
        ("", "x", False),
    ],
)
def test_a_phrase_occurs_between_edges_of_words(phrase: str, text: str, there: bool) -> None:
    assert occurs(phrase, text) is there


@pytest.mark.parametrize(
    "phrases", [["a"], ["ab"], ["a b", "."], ["."], ["b ab", "ba"], [". a"], ["a b .", "b"]]
)
def test_automaton_finds_phrases_in_any_segmentation(phrases: list[str]) -> None:
    automaton = PhraseAutomaton([[spell(p) for p in phrases]], tiny_vocabulary())
    for row in itertools.product(range(4, len(PIECES)), repeat=4):
        state = automaton.starts[0]
        for subword in row:
            state = automaton.read(state, torch.tensor(subword))
        text = batch_text(row)
        assert bool(automaton.found_at_end[state]) is any(occurs(p, text) for p in phrases), text


def held_bytes(value: object) -> int:
    """Of all arrays and tensors in it."""
    if isinstance(value, Tensor | np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return sum(map(held_bytes, value)) if isinstance(value, tuple | list) else 0


@pytest.mark.parametrize("remembered", [2**20, 1000])
def test_forbidden_phrases_keep_no_row_of_the_vocabulary_for_a_state(
    remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrase_automaton, "_MOST_REMEMBERED", remembered)
    words = ["".join(letters) for letters in itertools.product("abcdef", repeat=4)]
    pieces = ["", " ?", "", "", *"abcdef ,", *(f" {word}" for word in words), *words]
    vocabulary = Vocabulary.from_spellings([spell(piece) for piece in pieces])
    phrases = [*words[::20], *(f"{a} {b}," for a, b in zip(words[::30], words[1::30], strict=True))]
    automaton = PhraseAutomaton([[spell(phrase) for phrase in phrases]], vocabulary)
    # All states within and after the phrases, letter by letter.
    letters = {piece: subword for subword, piece in enumerate(pieces) if len(piece) == 1}
    visited = {int(automaton.starts[0])}
    for phrase in phrases:
        state = automaton.starts[0]
        for piece in phrase:
            state = automaton.read(state, torch.tensor(letters[piece]))
            visited.add(int(state))
    before = held_bytes(vars(automaton))
    subwords = torch.arange(len(pieces))
    for state, at_end in itertools.product(sorted(visited), (False, True)):
        [[row]] = automaton.completing([[state]], at_end=at_end)
        after = automaton.read(torch.full_like(subwords, state), subwords)
        dense = (automaton.found_at_end if at_end else automaton.found)[after]
        dense[EOS] = automaton.found_at_end[state]
        assert torch.equal(row, dense & ~automaton.found[state])
    assert len(visited) > 100
    dense_bytes = 2 * len(visited) * len(pieces)
    most = min(dense_bytes / 20, 4 * (remembered + len(pieces)))
    assert held_bytes(vars(automaton)) - before < most


def test_the_automaton_reads_characters_that_are_spelled_in_bytes() -> None:
    tokenizer = tiny_tokenizer()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    [subwords] = tokenizer.encode_target(["€"])
    assert tokenizer.subwords(subwords[-3:]) == ["<0xE2>", "<0x82>", "<0xAC>"]
    automaton = PhraseAutomaton([[spell("ein €")], [spell("hund")]], vocabulary)
    for text, found in (("ein €", [1, 0]), ("hund€ ein ¥", [0, 1]), ("mein €", [0, 0])):
        states = automaton.starts
        for subword in tokenizer.encode_target([text])[0]:
            states = automaton.read(states, torch.tensor([subword, subword]))
        assert automaton.found_at_end[states].tolist() == found
    for text in ("ein hund läuft .", "(x) 😀"):
        [subwords] = tokenizer.encode_target([text])
        spelling = vocabulary.join(subwords)
        assert bytes(byte for byte, _ in spelling).decode() == " " + text


@pytest.mark.parametrize("phrases", [["a"], ["ab", "."], ["a a"], ["b", "a", "ab", "ba"]])
def test_never_phrases_leave_the_best_of_all_others(phrases: list[str]) -> None:
    config = search_config(beam_size=2000)
    limits = torch.full((3,), LIMIT)
    found = beam_search(forbidding(phrases, 2000, 3), limits, config)
    for seed, [hypothesis] in zip(SEEDS, found, strict=True):
        total, row = best(seed, lambda text: not any(occurs(p, text) for p in phrases))
        assert hypothesis.tokens == row
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("prefix", [[6], [9, 9], [9, 7, 7, 9]])
def test_a_prefix_leaves_the_best_of_what_begins_so(prefix: list[int]) -> None:
    """In any pieces; and a sentence of the same batch without a prefix stays what it was."""
    step = beginning([prefix, [-1] * len(prefix)], 2000)
    found = beam_search(step, torch.tensor([LIMIT, LIMIT]), search_config(beam_size=2000))
    begun = batch_text(tuple(prefix))
    expected = [best(SEEDS[0], lambda text: text.startswith(begun)), best(SEEDS[1], lambda _: True)]
    for (total, row), [hypothesis] in zip(expected, found, strict=True):
        assert hypothesis.tokens == row
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("algorithm", ["greedy", "beam", "diverse", "sampling"])
def test_every_search_obeys(algorithm: str) -> None:
    changes = {"greedy": {"beam_size": 1}, "diverse": {"beam_size": 4, "groups": 2}}
    config = search_config(algorithm=algorithm, min_length=3, **changes.get(algorithm, {}))
    step = forbidding(["a", "."], config.width, 3)
    step.prefixes = torch.tensor([[8, -1], [-1, -1], [5, 5]])
    step.lengths = torch.tensor([1, 0, 2])
    limits = torch.full((3,), LIMIT)
    if algorithm == "sampling":
        found = sample_search(step, limits, config, [1, 2, 3])
    else:
        found = SEARCHES[algorithm](step, limits, config)
    texts = [batch_text(hypotheses[0].tokens) for hypotheses in found]
    assert texts[0].startswith("ab")
    assert texts[2].startswith("bb")
    assert not any(occurs(phrase, text) for phrase in ("a", ".") for text in texts)
    assert all(-math.inf < h.log_probability < 0 for [h, *_] in found)


def test_a_prefix_may_repeat_ngrams() -> None:
    step = beginning([[4, 4, 4]], 3, limit=5)
    [[hypothesis]] = beam_search(step, torch.tensor([5]), search_config(no_repeat_ngram=1))
    assert hypothesis.tokens[:3] == (4, 4, 4)
    assert 4 not in hypothesis.tokens[3:]


TEXTS = [source for source, _ in PAIRS]


def wordy_translator(**changes: object) -> Translator:
    """Of a random model that mostly spells letters and words, not bytes."""
    translator = tiny_translator(max_length_ratio=1.0, **changes)
    with torch.no_grad():
        translator.model.projection.weight[4:260] = 0
    return translator


@pytest.mark.parametrize("algorithm", ["greedy", "beam", "sampling"])
def test_constraints_hold_and_change_no_other_translation(algorithm: str) -> None:
    changes = {"greedy": {"beam_size": 1}, "sampling": {"top_k": 3}}
    translator = wordy_translator(algorithm=algorithm, **changes.get(algorithm, {}))
    plain = translator.translate(TEXTS)
    words = tuple(w for w in re.findall("[a-zä]+", plain[2].text) if occurs(w, plain[2].text))
    assert words
    asked = [Constraints(prefix="ein h"), None, Constraints(never=words), Constraints()]
    found = translator.translate(TEXTS, asked)
    assert found[0].text.startswith("ein h")
    assert not any(occurs(word, found[2].text) for word in words)
    assert [t.unmet for t in found] == [(), None, (), None]
    for index in (1, 3):
        assert found[index].text == plain[index].text
    alone = [translator.translate([t], [c])[0] for t, c in zip(TEXTS, asked, strict=True)]
    assert [t.text for t in alone] == [t.text for t in found]


def test_a_prefix_that_ends_in_a_space_ends_the_word() -> None:
    translator = wordy_translator()
    for text in TEXTS:
        asked = [Constraints("ein h"), Constraints("ein h ")]
        in_word, closed = translator.translate([text] * 2, asked)
        assert in_word.text.startswith("ein h")
        assert (closed.text + " ").startswith("ein h ")
        assert closed.unmet == ()


def test_a_prefix_longer_than_the_model_is_cut_and_reported() -> None:
    translator = tiny_translator(max_length=12)
    long = "ein langes buch ein langes buch ein langes buch"
    [found] = translator.translate(["a dog"], [Constraints(prefix=long)])
    assert found.unmet == (f"prefix: {long}",)
    assert long.startswith(found.text)
    assert found.score > -1e4


@pytest.mark.parametrize("algorithm", ["greedy", "beam"])
def test_a_prefix_whose_bytes_look_forbidden_can_go_on(algorithm: str) -> None:
    """The numeral belongs to the word, but its first byte looks like punctuation."""
    translator = wordy_translator(algorithm=algorithm, beam_size=2 - (algorithm == "greedy"))
    [found] = translator.translate(["a dog"], [Constraints("a\u2177", never=("a",))])
    assert found.text.startswith("a\u2177")
    assert found.score > -1e4
    assert "<pad>" not in found.tokens


def test_blank_and_split_texts() -> None:
    [blank] = tiny_translator().translate([" "], [Constraints("ein", ("hund",), ("katze",))])
    assert (blank.text, blank.unmet) == ("", ("prefix: ein", "must: hund"))
    assert blank.to_json()["unmet"] == blank.unmet
    assert "unmet" not in tiny_translator().translate(["a dog"])[0].to_json()
    translator = wordy_translator(max_length=24)
    text = " ".join(TEXTS)
    [plain] = translator.translate([text])
    asked = Constraints(prefix="zwei", must=("unmöglich",), never=(plain.text.split()[-1],))
    [found] = translator.translate([text], [asked])
    assert found.text.startswith("zwei")
    assert found.unmet == ()  # one part has the phrase
