"""The paradigms of German and English against the school tables, written by hand."""

import pytest

from tests.unit.data.pocket import entry
from transformer.data.inflection import english_verb, german_noun, german_verb

AGREEMENTS = ("m", "f", "n", "pl")
CASES = ("nom", "acc", "dat", "gen")

NOUNS = {
    "man": "Mann Mann Mann Mannes, Männer Männer Männern Männer",
    "boy": "Junge Jungen Jungen Jungen, Jungen Jungen Jungen Jungen",
    "student": "Student Studenten Studenten Studenten, Studenten Studenten Studenten Studenten",
    "gentleman": "Herr Herrn Herrn Herrn, Herren Herren Herren Herren",
    "neighbour": "Nachbar Nachbarn Nachbarn Nachbarn, Nachbarn Nachbarn Nachbarn Nachbarn",
    "name": "Name Namen Namen Namens, Namen Namen Namen Namen",
    "bear": "Bär Bären Bären Bären, Bären Bären Bären Bären",
    "garden": "Garten Garten Garten Gartens, Gärten Gärten Gärten Gärten",
    "woman": "Frau Frau Frau Frau, Frauen Frauen Frauen Frauen",
    "daughter": "Tochter Tochter Tochter Tochter, Töchter Töchter Töchtern Töchter",
    "child": "Kind Kind Kind Kindes, Kinder Kinder Kindern Kinder",
    "car": "Auto Auto Auto Autos, Autos Autos Autos Autos",
    "girl": "Mädchen Mädchen Mädchen Mädchens, Mädchen Mädchen Mädchen Mädchen",
    "house": "Haus Haus Haus Hauses, Häuser Häuser Häusern Häuser",
}

# English verb and frame: I, you, he, we, they; participle; infinitive with zu; imperative.
VERBS = {
    "drive (directional)": "fahre fährst fährt fahren fahren; gefahren; zu fahren; fahre",
    "read (transitive)": "lese liest liest lesen lesen; gelesen; zu lesen; lies",
    "give (ditransitive)": "gebe gibst gibt geben geben; gegeben; zu geben; gib",
    "eat (transitive)": "esse isst isst essen essen; gegessen; zu essen; iss",
    "take part (prepositional)": (
        "nehme nimmst nimmt nehmen nehmen; teilgenommen; teilzunehmen; nimm"
    ),
    "work (intransitive)": "arbeite arbeitest arbeitet arbeiten arbeiten; gearbeitet; "
    "zu arbeiten; arbeite",
    "open (transitive)": "öffne öffnest öffnet öffnen öffnen; geöffnet; zu öffnen; öffne",
    "collect (transitive)": "sammle sammelst sammelt sammeln sammeln; gesammelt; "
    "zu sammeln; sammle",
    "feed (transitive)": "füttere fütterst füttert füttern füttern; gefüttert; zu füttern; füttere",
    "play (intransitive)": "spiele spielst spielt spielen spielen; gespielt; zu spielen; spiele",
    "hold (transitive)": "halte hältst hält halten halten; gehalten; zu halten; halte",
    "invite (transitive)": "lade lädst lädt laden laden; eingeladen; einzuladen; lade",
    "wash (transitive)": "wasche wäschst wäscht waschen waschen; gewaschen; zu waschen; wasche",
    "close (transitive)": "schließe schließt schließt schließen schließen; geschlossen; "
    "zu schließen; schließe",
    "translate (transitive)": "übersetze übersetzt übersetzt übersetzen übersetzen; übersetzt; "
    "zu übersetzen; übersetze",
}

# Declension: the forms of "alt" by case, for masculine, feminine, neuter, plural.
ADJECTIVES = {
    "weak": "alte alten alten alten, alte alte alten alten, "
    "alte alte alten alten, alten alten alten alten",
    "mixed": "alter alten alten alten, alte alte alten alten, "
    "altes altes alten alten, alten alten alten alten",
    "strong": "alter alten altem alten, alte alte alter alter, "
    "altes altes altem alten, alte alte alten alter",
}

DETERMINERS = {
    "the": "der den dem des, die die der der, das das dem des, die die den der",
    "my": "mein meinen meinem meines, meine meine meiner meiner, "
    "mein mein meinem meines, meine meine meinen meiner",
    "this": "dieser diesen diesem dieses, diese diese dieser dieser, "
    "dieses dieses diesem dieses, diese diese diesen dieser",
}


@pytest.mark.parametrize("name", NOUNS)
def test_noun(name: str) -> None:
    forms = entry(f"noun:{name}").german
    singular, plural = (half.split() for half in NOUNS[name].split(", "))
    assert [forms[f"sg.{case}"] for case in CASES] == singular
    assert [forms[f"pl.{case}"] for case in CASES] == plural


@pytest.mark.parametrize("name", VERBS)
def test_verb(name: str) -> None:
    forms = entry(f"verb:{name}").german
    present, participle, zu, imperative = VERBS[name].split("; ")
    persons = ("1sg", "2sg", "3sg", "1pl", "3pl")
    assert [forms[f"present.{person}"] for person in persons] == present.split()
    assert [forms["participle"], forms["zu"], forms["imperative"]] == [participle, zu, imperative]


@pytest.mark.parametrize("declension", ADJECTIVES)
def test_adjective(declension: str) -> None:
    forms = entry("adjective:old").german
    for agreement, column in zip(AGREEMENTS, ADJECTIVES[declension].split(", "), strict=True):
        expected = dict(zip(CASES, column.split(), strict=True))
        assert {c: forms[f"positive.{declension}.{agreement}.{c}"] for c in CASES} == expected


@pytest.mark.parametrize("name", DETERMINERS)
def test_determiner(name: str) -> None:
    forms = entry(f"determiner:{name}").german
    for agreement, column in zip(AGREEMENTS, DETERMINERS[name].split(", "), strict=True):
        assert [forms[f"{agreement}.{case}"] for case in CASES] == column.split()


def test_adjectives_compare() -> None:
    forms = {name: entry(f"adjective:{name}").german for name in ("good", "expensive", "big")}
    assert forms["good"]["comparative.predicate"] == "besser"
    assert forms["big"]["superlative.weak.m.nom"] == "größte"
    assert forms["expensive"]["positive.mixed.n.nom"] == "teures"
    assert forms["expensive"]["positive.predicate"] == "teuer"


@pytest.mark.parametrize(
    ("notation", "past", "progressive", "third"),
    [
        ("carry", "carried", "carrying", "carries"),
        ("invite", "invited", "inviting", "invites"),
        ("watch", "watched", "watching", "watches"),
        ("play", "played", "playing", "plays"),
        ("lie, lay, lain", "lay", "lying", "lies"),
        ("go, went, gone", "went", "going", "goes"),
        ("plan, planned, planned, planning", "planned", "planning", "plans"),
    ],
)
def test_english_verb(notation: str, past: str, progressive: str, third: str) -> None:
    forms = english_verb(notation)
    assert (forms["past.1sg"], forms["progressive"], forms["present.3sg"]) == (
        past,
        progressive,
        third,
    )


@pytest.mark.parametrize("notation", ["Mann, des Mannes", "der Mann", "der Mann, , die Männer"])
def test_a_malformed_noun_is_refused(notation: str) -> None:
    with pytest.raises(ValueError, match="Mann"):
        german_noun(notation)


@pytest.mark.parametrize("notation", ["gehen", "gehen, geht, gegangen"])
def test_a_malformed_verb_is_refused(notation: str) -> None:
    with pytest.raises(ValueError, match="gehen"):
        german_verb(notation)
