"""The alignment of the grammar, between words as they are written."""

from transformer.data.sentence_pair import Sentence, SentencePair


def sentence(text: str) -> Sentence:
    words = tuple(text.split())
    return Sentence(words, ("X",) * len(words))


def test_punctuation_and_genitives_are_written_with_the_word_before() -> None:
    lena = sentence("Lena 's dog , which is 'small' , sleeps .")
    assert lena.text == "Lena's dog, which is 'small', sleeps."
    assert lena.written == (0, 0, 1, 1, 2, 3, 4, 4, 5, 5)
    assert [lena.text.split()[place] for place in lena.written[::3]] == [
        *("Lena's", "dog,", "'small',", "sleeps."),
    ]


def test_a_written_word_has_the_links_of_all_its_words() -> None:
    english, german = sentence("Lena 's dog has slept ."), sentence("Lenas Hund schlief .")
    pair = SentencePair(english, german, ((0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3)))
    assert pair.links == {(0, 0), (1, 1), (2, 2), (3, 2)}
