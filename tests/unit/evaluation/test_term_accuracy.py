"""Term accuracy, and the files that list terms."""

from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.data.text.phrases import read_phrases
from transformer.evaluation.metrics import term_accuracy


def test_the_share_of_terms_that_occur_as_words() -> None:
    hypotheses = ["Der Hund läuft.", "Die Hunde laufen.", "Nichts."]
    terms = [("Hund", "Katze"), ("Hund", "laufen"), ()]
    score = term_accuracy(hypotheses, terms, "match:words")
    assert score.value == 50
    assert score.to_json() == {
        "name": "term accuracy",
        "score": 50.0,
        "signature": "nterms:4|match:words",
        "found": 2,
        "terms": 4,
    }


def test_terms_are_read_with_tabs_or_as_lists(tmp_path: Path) -> None:
    (tmp_path / "terms").write_text('das Haus\tHund\n\n["[1]", "a\\tb"]\n[]\nHund\t \n')
    expected = [("das Haus", "Hund"), (), ("[1]", "a\tb"), (), ("Hund",)]
    assert list(read_phrases(tmp_path / "terms")) == expected
    path = tmp_path / "terms"
    for broken in ("[1]", "[x", '["a", null]'):
        path.write_text(f"Hund\n{broken}\n")
        with pytest.raises(InputError, match=f"{path}:2: not a JSON list of strings"):
            list(read_phrases(path))
