"""Paradigms: every form of an English or German word from its dictionary notation.

It knows no rules, sentences or meanings. German follows the school tables (Duden,
Die Grammatik, on strong, weak and mixed declension and the principal parts of verbs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Forms = dict[str, str]
"""Form key (feature values joined by dots, e.g. ``pl.dat``) to word; ``""`` is invariant."""

CASES = ("nom", "acc", "dat", "gen")
PERSONS = ("1sg", "2sg", "3sg", "1pl", "3pl")
GENDERS = {"der": "m", "die": "f", "das": "n"}

_SIBILANTS = ("s", "x", "z", "ch", "sh")
_GERMAN_SIBILANTS = ("s", "ß", "z", "x")
_VOWELS = "aeiou"


def parts_of(notation: str) -> list[str]:
    """The comma-separated parts of a dictionary notation.

    Raises:
        ValueError: a part is empty.
    """
    parts = [part.strip() for part in notation.split(",")]
    if not all(parts):
        raise ValueError(f"an empty part in {notation!r}")
    return parts


def _with_s(word: str) -> str:
    """The English -s of the plural and of the third person."""
    if word.endswith(_SIBILANTS) or (word.endswith("o") and word[-2] not in _VOWELS):
        return word + "es"
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def english_noun(notation: str) -> Forms:
    """``"man, men"``, ``"house"`` or ``"parents (plural)"`` to the forms ``sg`` and ``pl``."""
    parts = parts_of(notation)
    if parts[0].endswith(" (plural)"):
        parts = [parts[0].removesuffix(" (plural)")] * 2
    return {"sg": parts[0], "pl": parts[1] if len(parts) > 1 else _with_s(parts[0])}


def english_adjective(notation: str) -> Forms:
    """``"old, older, oldest"``, or ``"tired"`` compared with more and most."""
    parts = parts_of(notation)
    if len(parts) == 3:
        return dict(zip(("positive", "comparative", "superlative"), parts, strict=True))
    return {
        "positive": parts[0],
        "comparative": f"more {parts[0]}",
        "superlative": f"most {parts[0]}",
    }


def english_verb(notation: str) -> Forms:
    """``"stop, stopped, stopped, stopping"`` or ``"call"`` to the forms of a verb.

    A second word of the first part is the particle (``"get up, got, got"``). The optional
    fifth part is the third person singular, where it is irregular.
    """
    parts = parts_of(notation)
    base, _, particle = parts[0].partition(" ")
    stem = base[:-1] if base.endswith("e") else base
    past = base[:-1] + "ied" if base.endswith("y") and base[-2] not in _VOWELS else stem + "ed"
    keeps_e = base.endswith(("ee", "oe", "ye"))
    progressive = (base if keeps_e else stem) + "ing"
    if base.endswith("ie"):
        progressive = base[:-2] + "ying"
    third = parts[4] if len(parts) > 4 else _with_s(base)
    past = parts[1] if len(parts) > 1 else past
    forms = {
        "base": base,
        "particle": particle,
        "participle": parts[2] if len(parts) > 2 else past,
        "progressive": parts[3] if len(parts) > 3 else progressive,
        "imperative": base,
    }
    for person in PERSONS:
        forms[f"present.{person}"] = third if person == "3sg" else base
        forms[f"past.{person}"] = past
    return forms


def german_noun(notation: str) -> tuple[str, Forms]:
    """Gender and forms (``sg.dat``, ...) of ``"der Mann, des Mannes, die Männer"``.

    ``"das Wasser, des Wassers"`` has no plural, ``"die Eltern (plural)"`` no singular. A
    masculine whose genitive adds -(e)n or -ns is weak: the ending stands in all oblique cases.

    Raises:
        ValueError: the notation is neither of the three.
    """
    parts = parts_of(notation)
    article, _, nominative = parts[0].partition(" ")
    if article not in GENDERS or not nominative:
        raise ValueError(f"{notation!r} does not begin with der, die or das and a noun")
    if nominative.endswith(" (plural)"):
        return "pl", _plural(nominative.removesuffix(" (plural)"))
    if len(parts) not in (2, 3):
        raise ValueError(f"{notation!r} needs its genitive and, if it has one, its plural")
    gender = GENDERS[article]
    genitive = parts[1].partition(" ")[2]
    weak = gender == "m" and genitive in {nominative + end for end in ("n", "en", "ns")}
    oblique = genitive.removesuffix("s") if weak else nominative
    forms = {"sg.nom": nominative, "sg.acc": oblique, "sg.dat": oblique, "sg.gen": genitive}
    if len(parts) == 3:
        forms |= _plural(parts[2].partition(" ")[2])
    return gender, forms


def _plural(plural: str) -> Forms:
    forms = {f"pl.{case}": plural for case in CASES}
    if not plural.endswith(("n", "s")):
        forms["pl.dat"] = plural + "n"
    return forms


def german_determiner(stem: str, endings: Mapping[str, Sequence[str]]) -> Forms:
    """Stem and table of endings (agreement to four cases) to forms such as ``m.acc``."""
    return {
        f"{agreement}.{case}": stem + ending
        for agreement, column in endings.items()
        for case, ending in zip(CASES, column, strict=True)
    }


def german_adjective(notation: str, endings: Mapping[str, Mapping[str, Sequence[str]]]) -> Forms:
    """``"alt, älter, ältest"``, with a fourth part for another stem (hoch, hoh-).

    The forms are ``positive.predicate`` and, for each declension in ``endings``,
    ``positive.weak.m.nom`` and so on; likewise comparative and superlative.
    """
    parts = parts_of(notation)
    positive = parts[0]
    superlative = positive + ("est" if positive.endswith(("d", "t", "s", "ß", "z")) else "st")
    stems = {
        "positive": parts[3] if len(parts) > 3 else positive.removesuffix("e"),
        "comparative": parts[1] if len(parts) > 1 else positive + "er",
        "superlative": parts[2] if len(parts) > 2 else superlative,
    }
    forms = {
        "positive.predicate": positive,
        "comparative.predicate": stems["comparative"],
    }
    for degree, stem in stems.items():
        for declension, table in endings.items():
            for key, form in german_determiner(stem, table).items():
                forms[f"{degree}.{declension}.{key}"] = form
    return forms


def german_verb(notation: str) -> Forms:
    """``"an|rufen, ruft an, hat angerufen"`` to the forms of a verb.

    A bar sets the separable particle apart. A fourth part ``"du hältst"`` gives a second
    person that does not follow from the third. ``auxiliary`` is haben or sein.

    Raises:
        ValueError: a principal part is missing or the perfect lacks hat or ist.
    """
    parts = parts_of(notation)
    if len(parts) < 3 or parts[2].partition(" ")[0] not in ("hat", "ist"):
        raise ValueError(f"{notation!r} is not infinitive, third person, perfect")
    particle, _, plain = parts[0].rpartition("|")
    third = parts[1].partition(" ")[0]
    auxiliary, _, participle = parts[2].partition(" ")
    second = parts[3].split(" ")[1] if len(parts) > 3 else _second_person(third)
    first = _with_e(plain)
    present = {"1sg": first, "2sg": second, "3sg": third, "1pl": plain, "3pl": plain}
    forms = {f"present.{person}": form for person, form in present.items()}
    joint = f"{particle}zu{plain}" if particle else f"zu {plain}"
    return forms | {
        "infinitive": particle + plain,
        "zu": joint,
        "participle": participle,
        "particle": particle,
        "auxiliary": "haben" if auxiliary == "hat" else "sein",
        "imperative": _imperative(plain, third),
    }


def _second_person(third: str) -> str:
    base = third[:-1]
    return base + ("t" if base.endswith(_GERMAN_SIBILANTS) else "st")


def _with_e(infinitive: str) -> str:
    """kaufe, öffne, füttere, sammle."""
    if infinitive.endswith("eln"):
        return infinitive[:-3] + "le"
    return infinitive.removesuffix("n").removesuffix("e") + "e"


def _imperative(infinitive: str, third: str) -> str:
    """lies, gib (e to i); else with -e."""
    stem = infinitive.removesuffix("n").removesuffix("e")
    base = third[:-1]
    changes = base not in (stem, stem + "e") and "e" in stem and "i" in base
    return base if changes else _with_e(infinitive)
