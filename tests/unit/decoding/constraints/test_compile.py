"""Searches with prefixes and forbidden phrases, against brute force over all texts."""

import itertools
import re
from pathlib import Path

import pytest
import torch

from tests.helpers.data.vocabulary_files import suffix_file
from tests.helpers.decoding.steps import RecurrentStep, search_config
from tests.helpers.decoding.tiny_language import (
    LIMIT,
    PIECES,
    SEEDS,
    batch_text,
    best,
    every_hypothesis,
    tiny_vocabulary,
)
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer, tiny_translator
from tests.helpers.model.models import tiny_transformer
from transformer.data.text.phrases import occurs
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.compile import (
    CompiledConstraints,
    ConstrainedStep,
    ConstraintCompiler,
    OpenWords,
)
from transformer.decoding.constraints.phrase_automaton import (
    NEVER,
    PhraseAutomaton,
    Vocabulary,
    spell,
)
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.search.beam import beam_search
from transformer.decoding.translator import Translator
from transformer.settings.tokenizer import EOS, UNK, TokenizerConfig


def test_a_phrase_occurs_between_edges_of_words() -> None:
    assert occurs("der", "der,wieder")
    assert occurs("das  Haus", "nur das \t Haus.")
    assert occurs("(der", "x(der)")
    assert occurs("猫", "黒猫が")
    assert occurs("caf\u00e9", "cafe\u0301s cafe\u0301")
    assert not occurs("der", "Der wieder")
    assert not occurs("", "x")


@pytest.mark.parametrize("phrases", [["a"], ["a b", "."], ["b ab", "ba"], [". a"], ["a b .", "b"]])
def test_automaton_finds_phrases_in_any_segmentation(phrases: list[str]) -> None:
    automaton = PhraseAutomaton([[spell(p) for p in phrases]], tiny_vocabulary())
    visited = set()
    for row in itertools.product(range(4, len(PIECES)), repeat=4):
        state = automaton.starts[0]
        for subword in row:
            state = automaton.read(state, torch.tensor(subword))
            visited.add(int(state))
        text = batch_text(row)
        assert bool(automaton.found_at_end[state]) is any(occurs(p, text) for p in phrases), text
    # The subwords that complete a phrase are those that lead to a state with one.
    subwords = torch.arange(len(PIECES))
    for number, at_end in itertools.product(visited, (False, True)):
        [[completing]] = automaton.completing([[number]], at_end=at_end)
        after = automaton.read(torch.full_like(subwords, number), subwords)
        expected = (automaton.found_at_end if at_end else automaton.found)[after]
        expected[EOS] = automaton.found_at_end[number]
        assert torch.equal(completing, expected & ~automaton.found[number])


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


@pytest.mark.parametrize("phrases", [["a"], ["ab", "."], ["a a"]])
def test_never_phrases_leave_the_best_of_all_others(phrases: list[str]) -> None:
    automaton = PhraseAutomaton([[spell(phrase) for phrase in phrases]], tiny_vocabulary())
    never = (automaton, automaton.starts[:1].expand(3))
    constraints = CompiledConstraints(torch.empty(3, 0, dtype=torch.long), None, never, None)
    limits = torch.full((3,), LIMIT)
    step = ConstrainedStep(RecurrentStep(SEEDS, 2000, len(PIECES)), constraints, limits, 2000)
    found = beam_search(step, limits, search_config(beam_size=2000))
    for seed, [hypothesis] in zip(SEEDS, found, strict=True):
        total, row = best(seed, lambda text: not any(occurs(p, text) for p in phrases))
        assert hypothesis.tokens == row
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("prefix", [[6], [9, 9], [9, 7, 7, 9]])
def test_a_prefix_leaves_the_best_of_what_begins_so(prefix: list[int]) -> None:
    """In any pieces; and a sentence of the same batch without a prefix stays what it was."""
    prefixes = torch.tensor([prefix, [-1] * len(prefix)])
    constraints = CompiledConstraints(prefixes, None, None, None)
    limits = torch.full((2,), LIMIT)
    step = ConstrainedStep(RecurrentStep(SEEDS[:2], 2000, len(PIECES)), constraints, limits, 2000)
    found = beam_search(step, limits, search_config(beam_size=2000))
    begun = batch_text(tuple(prefix))
    expected = [best(SEEDS[0], lambda text: text.startswith(begun)), best(SEEDS[1], lambda _: True)]
    for (total, row), [hypothesis] in zip(expected, found, strict=True):
        assert hypothesis.tokens == row
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("word", ["a", " a", "ab", "ba", "a."])
@pytest.mark.parametrize("forced", [[], [9]])
def test_an_open_word_is_spelled_in_any_subwords(word: str, forced: list[int]) -> None:
    """In a batch with a sentence whose prefix is forced, and one without."""
    cut = [PIECES.index(character) for character in word]
    words = OpenWords.compile([cut, [], []], tiny_vocabulary(), torch.device("cpu"))
    prefixes = torch.tensor([[*forced, -1, -1][:2], [6, 5], [-1, -1]])
    constraints = CompiledConstraints(prefixes, None, None, None, words)
    limits = torch.full((3,), LIMIT)
    step = ConstrainedStep(RecurrentStep(SEEDS, 2000, len(PIECES)), constraints, limits, 2000)
    found = beam_search(step, limits, search_config(beam_size=2000))
    begun = batch_text(tuple(forced)) + word
    totals = every_hypothesis(SEEDS[0])
    expected = {
        row: total
        for row, total in totals.items()
        if batch_text(row).startswith(begun)
        and row[: len(forced)] == tuple(forced)
        and 1 not in row
    }
    row = max(expected, key=expected.__getitem__)
    assert found[0][0].tokens == row
    assert found[0][0].log_probability == pytest.approx(expected[row], abs=1e-4)
    assert found[1][0].tokens[:2] == (6, 5)
    assert found[2][0].tokens == best(SEEDS[2], lambda _: True)[1]


def test_a_subword_that_leaves_what_none_spells_is_not_taken() -> None:
    spellings = [spell(piece) for piece in ("", "a", "ab", "abc", "c", "cd")]
    vocabulary = Vocabulary.from_spellings(spellings)
    assert vocabulary.spelling_out(b"abc").tolist() == [
        [NEVER, NEVER, 1, 0, NEVER, NEVER],
        [NEVER] * 6,
        [NEVER, NEVER, NEVER, NEVER, 0, 0],
    ]


TEXTS = [source for source, _ in PAIRS]


def wordy_translator(**changes: object) -> Translator:
    """Of a random model that mostly spells letters and words, not bytes."""
    translator = tiny_translator(max_length_ratio=1.0, **changes)
    with torch.no_grad():
        translator.model.projection.weight[4:260] = 0
    return translator


def test_constraints_hold_and_change_no_other_translation() -> None:
    translator = wordy_translator()
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
    for closed in translator.translate(TEXTS, [Constraints("ein h ")] * len(TEXTS)):
        assert (closed.text + " ").startswith("ein h ")
        assert closed.unmet == ()


@pytest.mark.parametrize(("between", "size"), [(" ", 282), ("", 300)])
def test_a_phrase_of_a_script_without_spaces_stands_as_words_do_in_its_text(
    between: str, size: int
) -> None:
    words = ["犬", "猫", "学生", "先生", "電車", "電話"]
    lines = [between.join(row) for row in itertools.permutations(words, 5)]
    config = TokenizerConfig(algorithm="bpe", vocab_size=size, joint=False)
    tokenizer = Tokenizer.train(config, lambda: [(line, line) for line in lines])
    model = tiny_transformer(source_vocab_size=size, target_vocab_size=size, output_bias=True)
    with torch.no_grad():
        model.projection.bias[EOS] = 9
    translator = Translator(model, tokenizer, search_config(beam_size=4))
    [found] = translator.translate(lines[:1], [Constraints("電車", must=("犬",))])
    assert found.text == f"電車{between}犬" and found.unmet == ()


def test_a_subword_may_spell_the_space_after_a_prefix(tmp_path: Path) -> None:
    file = suffix_file(tmp_path / "file", ["the dog walks home and the man sleeps"] * 5)
    config = TokenizerConfig(algorithm="huggingface", file=file, vocab_size=None)
    tokenizer = Tokenizer.train(config, lambda: [])
    ended = [Constraints(prefix="the ")]
    for one, needs_space in ((tokenizer, False), (tiny_tokenizer(), True)):
        compiled = ConstraintCompiler(one).compile(ended, 20, torch.device("cpu"))
        assert (compiled.after_prefix is not None) is needs_space


def test_a_prefix_may_end_inside_a_word_whose_subwords_spell_the_space_after_it(
    tmp_path: Path,
) -> None:
    file = suffix_file(tmp_path / "file", ["the dog walks home", "so do the men"] * 5)
    config = TokenizerConfig(algorithm="huggingface", file=file, vocab_size=None)
    tokenizer = Tokenizer.train(config, lambda: [])
    size = tokenizer.target_vocab_size
    model = tiny_transformer(source_vocab_size=size, target_vocab_size=size, output_bias=True)
    [[_, dog]] = tokenizer.encode_target(["the dog"])
    with torch.no_grad():
        model.projection.bias[dog] = 99
    translator = Translator(model, tokenizer, search_config())
    [found] = translator.translate(["a dog"], [Constraints("the do")])
    assert found.text.startswith("the dog") and found.unmet == ()


def test_an_unknown_symbol_is_spelled_as_it_is_written() -> None:
    """Nothing for bytes: it is no edge of a word."""
    config = TokenizerConfig(algorithm="bytes", vocab_size=None)
    alone = Vocabulary.from_tokenizer(Tokenizer.train(config, lambda: []))
    assert alone.spellings[UNK] == ()
    assert Vocabulary.from_tokenizer(tiny_tokenizer()).spellings[UNK] == spell(" \u2047 ")


def test_a_prefix_may_end_inside_a_word() -> None:
    """The cut of "hun" is no beginning of that of "hund"."""
    translator = wordy_translator(output_bias=True)
    tokenizer = translator.tokenizer
    [[*_, hund]], [hun] = (tokenizer.encode_target([text]) for text in ("der hund", "der hun"))
    assert hund not in hun
    with torch.no_grad():
        translator.model.projection.bias[hund] = 99
    [found] = translator.translate(["a dog"], [Constraints("der hun")])
    assert found.text.startswith("der hund")
    assert found.unmet == ()
    asked = [Constraints("der hun", must=("katze",)), Constraints("der hun", never=("hund",))]
    with_phrase, without = translator.translate(["a dog"] * 2, asked)
    assert with_phrase.text.startswith("der hund") and with_phrase.unmet == ()
    assert without.text.startswith("der hun") and without.unmet == ()


@pytest.mark.parametrize("algorithm", ["beam", "greedy", "sampling"])
def test_an_open_word_ends_before_the_limit(algorithm: str) -> None:
    """A model that spells letter by letter has fewer subwords than that for the word."""
    search = {"algorithm": algorithm, "beam_size": 2 if algorithm == "beam" else 1}
    translator = tiny_translator(
        max_length_ratio=0.0, max_length_offset=1, output_bias=True, **search
    )
    letters = [translator.tokenizer.subwords([id])[0] for id in range(290)]
    with torch.no_grad():
        for number, letter in enumerate(letters):
            translator.model.projection.bias[number] = 9.0 * (len(letter) == 1)
    [found] = translator.translate(["a dog"], [Constraints("ein katzen")])
    assert found.unmet == () and found.score > -1e4


def test_a_subword_beyond_an_open_word_forbids_what_it_completes() -> None:
    vocabulary = Vocabulary.from_spellings([spell(p) for p in ("", " ?", "", "", "a", ".", "..")])
    automaton = PhraseAutomaton([[spell("..")]], vocabulary)
    words = OpenWords.compile([[4, 5]], vocabulary, torch.device("cpu"))
    never = (automaton, automaton.starts)
    constraints = CompiledConstraints(torch.empty(1, 0, dtype=torch.long), None, never, None, words)
    for seed in range(20):
        limits = torch.tensor([4])
        step = ConstrainedStep(RecurrentStep([seed], 50, 7), constraints, limits, 50)
        [hypotheses] = beam_search(step, limits, search_config(beam_size=50, nbest=9))
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.tokens[:2] == (4, 5) and 6 not in hypothesis.tokens
            assert hypothesis.tokens[2:3] != (5,)


def test_a_prefix_longer_than_the_model_is_cut_and_reported() -> None:
    translator = tiny_translator(max_length=12)
    long = "ein langes buch ein langes buch ein langes buch"
    [found] = translator.translate(["a dog"], [Constraints(prefix=long)])
    assert found.unmet == (f"prefix: {long}",)
    assert long.startswith(found.text)
    assert found.score > -1e4


def test_a_prefix_whose_bytes_look_forbidden_can_go_on() -> None:
    """The numeral belongs to the word, but its first byte looks like punctuation."""
    translator = wordy_translator(beam_size=2)
    [found] = translator.translate(["a dog"], [Constraints("a\u2177", never=("a",))])
    assert found.text.startswith("a\u2177")
    assert found.score > -1e4
    assert "<pad>" not in found.tokens


def test_blank_and_split_texts() -> None:
    [blank] = tiny_translator().translate([" "], [Constraints("ein", ("hund",), ("katze",))])
    assert (blank.text, blank.unmet) == ("", ("prefix: ein", "must: hund"))
    assert blank.to_json()["unmet"] == blank.unmet
    translator = wordy_translator(max_length=24)
    text = " ".join(TEXTS)
    [plain] = translator.translate([text])
    asked = Constraints(prefix="zwei", must=("unmöglich",), never=(plain.text.split()[-1],))
    [found] = translator.translate([text], [asked])
    assert found.text.startswith("zwei")
    assert found.unmet == ()  # one part has the phrase


@pytest.mark.parametrize("end", [9.0, -9.0])
def test_the_limit_counts_what_follows_the_prefix(end: float) -> None:
    translator = tiny_translator(max_length_offset=6, output_bias=True)
    with torch.no_grad():
        translator.model.projection.bias[EOS] = end
    prefix = "der hund sieht eine katze ."
    [found] = translator.translate(["a dog runs ."], [Constraints(prefix=prefix)])
    [forced] = tiny_tokenizer().encode_target([prefix])
    assert len(forced) > 6
    assert len(found.tokens) == len(forced) + (0 if end > 0 else 6)
    assert found.is_unfinished is (end < 0)
