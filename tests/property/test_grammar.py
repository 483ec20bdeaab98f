"""Facts of German grammar that hold in whatever the pocket grammar says."""

from functools import cache
from itertools import islice, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.checks import no_checks
from tests.unit.data.pocket import pocket_grammar
from transformer.data.grammar import Derivation, SentencePair

SUBORDINATING = {"weil", "dass", "ob", "obwohl", "wenn", "bevor", "während", "als"}
DATIVE = {"mit", "bei", "von", "zu", "seit", "nach", "vor"}
GENITIVE = {"wegen", "trotz"}
TAGS = {"NOUN", "VERB", "AUX", "ADJ", "ADV", "PRON", "DET", "ADP"}
TAGS |= {"NUM", "CCONJ", "SCONJ", "PART", "PROPN", "PUNCT", "INTJ"}

# Endings of der and of ein by case, for masculine, feminine, neuter, plural.
DER = ("der", "den", "dem", "des", "die", "die", "der", "der")
DER += ("das", "das", "dem", "des", "die", "die", "den", "der")
EIN = ("-", "en", "em", "es", "e", "e", "er", "er", "-", "-", "em", "es", "e", "e", "en", "er")
KEYS = [(g, c) for g in ("m", "f", "n", "pl") for c in ("nom", "acc", "dat", "gen")]

seeds = st.integers(0, 2**32)


def derivations(seed: int) -> list[Derivation]:
    with no_checks():
        return list(islice(pocket_grammar().derivations(seed), 60))


def pairs(seed: int) -> list[SentencePair]:
    return [item.pair for item in derivations(seed)]


@cache
def noun_uses() -> dict[str, set[tuple[str, str]]]:
    """German noun form to the genders (or plural) and cases it can stand in."""
    uses: dict[str, set[tuple[str, str]]] = {}
    for noun in pocket_grammar().lexicon.entries["noun"]:
        for key, form in noun.german.items():
            number, case = key.split(".")
            agreement = "pl" if number == "pl" else noun.features["gender"]
            uses.setdefault(form, set()).add((agreement, case))
    return uses


def determiner_uses(word: str) -> set[tuple[str, str]] | None:
    """What an article or possessive agrees with; None for other determiners."""
    word = word.lower()
    if word in DER:
        return {key for key, form in zip(KEYS, DER, strict=True) if form == word}
    for stem in ("ein", "kein", "mein", "dein", "sein", "ihr", "unser"):
        if word.startswith(stem):
            ending = word.removeprefix(stem) or "-"
            return {key for key, form in zip(KEYS, EIN, strict=True) if form == ending}
    return None


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_words_have_tags_and_links_that_exist(seed: int) -> None:
    for pair in pairs(seed):
        for side in (pair.english, pair.german):
            assert len(side.words) == len(side.tags)
            assert TAGS.issuperset(side.tags)
            assert not any(" " in word or not word for word in side.words)
        assert list(pair.alignment) == sorted(set(pair.alignment))
        assert all(i < len(pair.english.words) for i, _ in pair.alignment)
        assert all(j < len(pair.german.words) for _, j in pair.alignment)


@settings(max_examples=50, deadline=None)
@given(seeds)
def test_every_word_is_aligned_that_has_a_counterpart(seed: int) -> None:
    for pair in pairs(seed):
        english = {i for i, _ in pair.alignment}
        german = {j for _, j in pair.alignment}
        missing = {w for i, w in enumerate(pair.english.words) if i not in english}
        assert missing <= {"to"}, pair.english.text  # of a recipient: a bare dative in German
        alone = [w for j, w in enumerate(pair.german.words) if j not in german]
        tags = [t for j, t in enumerate(pair.german.tags) if j not in german]
        assert all(
            word in (",", "um", "an", "am", "ans") or tag == "DET"
            for word, tag in zip(alone, tags, strict=True)
        )


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_a_sentence_begins_with_a_capital_and_ends_with_its_mark(seed: int) -> None:
    for pair in pairs(seed):
        for side in (pair.english, pair.german):
            assert side.words[0][0].isupper()
            assert side.words[-1] in (".", "?")
            assert " ," not in side.text and " ." not in side.text and ",." not in side.text
        assert pair.english.words[-1] == pair.german.words[-1]


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_german_nouns_and_only_they_are_capitalised(seed: int) -> None:
    for pair in pairs(seed):
        for word, tag in list(zip(pair.german.words, pair.german.tags, strict=True))[1:]:
            assert word[0].isupper() == (tag in ("NOUN", "PROPN")), pair.german.text


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_subordinate_clauses_end_with_a_verb(seed: int) -> None:
    for pair in pairs(seed):
        words, tags = pair.german.words, pair.german.tags
        for start, word in enumerate(words):
            relative = (
                tags[start] == "PRON"
                and start > 0
                and words[start - 1] == ","
                and (word in ("der", "die", "das", "den", "dem", "denen"))
            )
            if (word.lower() in SUBORDINATING and tags[start] == "SCONJ") or relative:
                end = next(i for i in range(start, len(words)) if tags[i] == "PUNCT")
                assert tags[end - 1] in ("VERB", "AUX"), pair.german.text


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_subordinate_clauses_stand_between_commas(seed: int) -> None:
    for pair in pairs(seed):
        for start, tag in enumerate(pair.german.tags):
            if tag == "SCONJ" and start > 0:
                assert pair.german.words[start - 1] == ",", pair.german.text


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_articles_agree_with_their_nouns(seed: int) -> None:
    for pair in pairs(seed):
        words, tags = pair.german.words, pair.german.tags
        for place, word in enumerate(words):
            uses = determiner_uses(word) if tags[place] == "DET" else None
            noun = next((i for i in range(place + 1, len(words)) if tags[i] != "ADJ"), 0)
            if uses and tags[noun] == "NOUN" and words[noun] in noun_uses():
                assert uses & noun_uses()[words[noun]], f"{word} {words[noun]}: {pair.german.text}"


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_prepositions_govern_their_case(seed: int) -> None:
    for pair in pairs(seed):
        for before, word, tag in zip(
            pair.german.words, pair.german.words[1:], pair.german.tags[1:], strict=False
        ):
            uses = determiner_uses(word) if tag == "DET" else None
            if uses and before.lower() in DATIVE:
                assert any(case == "dat" for _, case in uses), pair.german.text
            if uses and before.lower() in GENITIVE:
                assert any(case == "gen" for _, case in uses), pair.german.text


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_prepositions_and_articles_are_contracted(seed: int) -> None:
    open_forms = {"in dem", "in das", "an dem", "an das", "zu dem", "zu der", "von dem", "bei dem"}
    for pair in pairs(seed):
        tagged = list(zip(pair.german.words, pair.german.tags, strict=True))
        for (before, _), (word, tag) in pairwise(tagged):
            assert tag != "DET" or f"{before.lower()} {word}" not in open_forms


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_english_articles_fit_the_next_sound(seed: int) -> None:
    for pair in pairs(seed):
        words = [word.lower() for word in pair.english.words]
        for article, word in pairwise(words):
            if article in ("a", "an"):
                vowel = word[0] in "aeiou" and word not in ("university", "useful")
                assert (article == "an") == (vowel or word in ("hour", "honest"))


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_nothing_is_negated_on_one_side_only(seed: int) -> None:
    for pair in pairs(seed):
        english = sum(
            w.lower() in ("not", "cannot", "no", "nobody", "never") for w in pair.english.words
        )
        german = sum(
            w.lower() in ("nicht", "niemand", "nie") or w.lower().startswith("kein")
            for w in pair.german.words
        )
        assert english == german, pair


@settings(max_examples=5, deadline=None)
@given(seeds)
def test_a_seed_makes_the_same_sentences_again(seed: int) -> None:
    assert derivations(seed) == derivations(seed)
