"""The sentences that moved most come first, in both directions."""

from sacrebleu.metrics import BLEU, CHRF

from tests.helpers.decoding.metrics import RAW
from transformer.evaluation.comparison import Movement, SentenceScores, movement

REFERENCES = ["ein Hund schläft heute", "zwei Katzen", "drei Vögel singen", "vier Häuser", "fünf"]
BASE = ["ein", "zwei Katzen", "drei Vögel singen", "vier Häuser", "nichts"]
OTHER = ["ein Hund schläft heute", "zwei", "drei Vögel singen", "wer", "fünfe"]
SOURCES = ["1", "2", "3", "4", "5"]


def scored(hypotheses: list[str]) -> SentenceScores:
    return SentenceScores(hypotheses, REFERENCES, ("bleu", "chrf"), RAW)


def moved(by: str, limit: int) -> Movement:
    texts = SOURCES, REFERENCES, scored(BASE), scored(OTHER)
    return movement(*texts, by=by, better="higher", limit=limit)


def test_the_largest_change_is_first() -> None:
    found = moved("chrf", 5)
    assert (found.better, found.worse, found.same) == (2, 2, 1)
    assert [one.line for one in found.most_better] == [1, 5]
    assert [one.line for one in found.most_worse] == [4, 2]
    gains = [one.change("chrf") for one in found.most_better]
    losses = [one.change("chrf") for one in found.most_worse]
    assert gains == sorted(gains, reverse=True) and min(gains) > 0
    assert losses == sorted(losses) and max(losses) < 0
    # Letters are nearer in chrF, no word is right in BLEU: "fünfe" for "fünf" is no gain.
    found = moved("bleu", 5)
    assert [one.line for one in found.most_better] == [1]
    assert found.same == 2


def test_a_sentence_has_its_texts_and_scores() -> None:
    [first] = moved("chrf", 1).most_better
    assert (first.source, first.reference) == ("1", REFERENCES[0])
    assert first.hypotheses == ("ein", REFERENCES[0])
    chrf, bleu = CHRF(), BLEU(effective_order=True)
    for index, said in enumerate(first.hypotheses):
        assert first.scores["chrf"][index] == chrf.sentence_score(said, [REFERENCES[0]]).score
        assert first.scores["bleu"][index] == bleu.sentence_score(said, [REFERENCES[0]]).score
    assert scored(BASE).signatures == {
        "bleu": str(bleu.get_signature()),
        "chrf": str(chrf.get_signature()),
    }


def test_of_equals_the_first_comes_first() -> None:
    base, other = (
        SentenceScores(["x"] * 3, ["a"] * 3, ("chrf",), RAW),
        SentenceScores(["a"] * 3, ["a"] * 3, ("chrf",), RAW),
    )
    found = movement(["s"] * 3, ["a"] * 3, base, other, by="chrf", better="higher", limit=2)
    assert [one.line for one in found.most_better] == [1, 2]
    assert (found.better, found.most_worse) == (3, [])
