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
    ("Simple Message Facade for Java", "Simple Message Facade for Java (SMF4J)"),
    ("* Linux kernel thinkpad-acpi module", "* Linux-Kernel thinkpad-acpi-Modul"),
    ("- k16: 16-dot Kanji fonts", "- k16: 16-Punkt-Kanji-Schriften"),
    ("Network Security Services -- metapackage", "NSS (Network Security Services) - Metapaket"),
]
FOREIGN = [
    ("The settings are stored in a file.", "Les paramètres sont enregistrés dans un fichier."),
    ("The Apache server of Debian is stopped.", "Il server Apache di Debian viene fermato subito."),
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


@pytest.mark.parametrize("pair", NAMES)
def test_names_are_not_judged(pair: tuple[str, str], find: Callable[..., Fault | None]) -> None:
    assert find(*pair) is None


@pytest.mark.parametrize("pair", FOREIGN)
def test_another_language_is_found(
    pair: tuple[str, str], find: Callable[..., Fault | None]
) -> None:
    assert find(*pair) is not None
