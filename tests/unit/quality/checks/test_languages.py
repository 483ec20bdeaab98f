"""Sentences in another language are found; names and terms are of no language."""

from collections.abc import Callable

import pytest

from tests.unit.quality.texts import clean_texts
from transformer.data.corpora.split import NumberedPair
from transformer.quality.check import Fault
from transformer.quality.checks.languages import Language, Lexicon, find_wrong_language

NAMES = [
    ("Mono Cairo (for CLI 3.5)", "Bibliothek Mono.Cairo (für CLI 3.5)"),
    ("Brother Linux Printing and Scanning", "Brother Linux Printing and Scanning (BLPS)"),
    ("Network Security Services -- metapackage", "NSS (Network Security Services) - Metapaket"),
]
FOREIGN = [
    ("The settings are stored in a file.", "Les paramètres sont enregistrés dans un fichier."),
    ("Un artista pinta un retrato de su mujer.", "Ein Künstler malt ein Bild seiner Frau."),
    ("A boat is on the lake.", "En båt ligger på sjön medan gästerna väntar."),
]


@pytest.fixture(scope="module")
def find() -> Callable[[str, str], Fault | None]:
    pytest.importorskip("py3langid")
    pairs = clean_texts()["train"]
    source, target = zip(*pairs, strict=True)
    languages = Language.of("en", source), Language.of("de", target)
    lexicon = Lexicon(pairs)
    return lambda *texts: find_wrong_language(languages, lexicon, NumberedPair(1, *texts))


def test_another_language_is_found_and_names_are_not_judged(
    find: Callable[[str, str], Fault | None],
) -> None:
    assert [pair for pair in NAMES if find(*pair) is not None] == []
    assert [pair for pair in FOREIGN if find(*pair) is None] == []
