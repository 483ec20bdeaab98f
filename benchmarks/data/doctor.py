"""Precision and recall of transformer clean: faults planted by rule, and pairs labeled by eye.

    python benchmarks/data/doctor.py --data-root FOLDER [--write PAGE]
    python benchmarks/data/doctor.py --data-root FOLDER --text FILE.tsv --languages en de [--seed 1]

FOLDER holds multi30k and tanaka_enja. Faults, and good pairs that look like faults, are put in
place of random pairs of a corpus; it is then cleaned as ``transformer clean`` does by default. What
is rejected of the corpus itself counts as wrong, though much of it is: the precisions are lower
bounds. The pairs of benchmarks/data/doctor_pairs.tsv are labeled by eye, and are cleaned behind
the English and German corpus.
"""

import argparse
import gzip
import json
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.support.records import write_between
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus, read_lines
from transformer.quality.check import ExaminationConfig
from transformer.quality.cleaning import clean
from transformer.quality.corpus_checks import Checks
from transformer.settings.corpora import Filters

OF_A_KIND = 150
"""Pairs of the corpus that are replaced for each kind."""
SHIFTED = 200
"""Lines of the stretch that is shifted."""

_NOT_TRANSLATED = ("copy", "language", "script")

Pair = tuple[str, str]
Maker = Callable[[random.Random, str, str], Pair | None]
"""From a good pair to one with a fault, or None where that pair cannot have it."""


@dataclass(frozen=True)
class Kind:
    """What is planted."""

    checks: tuple[str, ...]
    """Any of them may find it; none: the pair is good. "repair": it is made as it was."""
    make: Maker


def _inserted(rng: random.Random, text: str, insertion: str) -> str:
    index = rng.randrange(len(text) + 1)
    return text[:index] + insertion + text[index:]


def _digit(rng: random.Random, source: str, target: str) -> Pair | None:
    """Change a digit of the target; where there is none, one of a number that is added."""
    indices = [index for index, character in enumerate(target) if character in "123456789"]
    if not indices or not any(map(str.isdigit, source)):
        number = str(rng.randint(13, 2100))
        source = f"{source} ({number})"
        target = f"{target} ({number})"
        indices = [len(target) - 2]
    index = rng.choice(indices)
    other = rng.choice([digit for digit in "123456789" if digit != target[index]])
    return source, target[:index] + other + target[index + 1 :]


def _address(rng: random.Random, source: str, target: str) -> Pair:
    names = rng.sample(("alpha", "beta", "gamma", "delta", "omega"), 3)
    url = "{} (see http://www.{}.org/{})", "{} ({}@{}.org)"
    shape = rng.choice(url)
    return shape.format(source, names[0], names[1]), shape.format(target, names[0], names[2])


_MARKED = "<p>{} {}</p>", "<b>{}</b> {}", "{} {}<br>", '<span class="x">{}</span> {}'


def _marked(*sides: int) -> Maker:
    def make(rng: random.Random, *pair: str) -> Pair:
        shape = rng.choice(_MARKED)
        texts = [*pair]
        for side in sides:
            texts[side] = shape.format(*f"{texts[side]} ".split(" ", 1))
        return texts[0], texts[1]

    return make


def _encoding(times: int, encoding: str) -> Maker:
    def make(rng: random.Random, source: str, target: str) -> Pair | None:
        text = target
        for _ in range(times):
            try:
                text = text.encode().decode(encoding)
            except UnicodeDecodeError:
                return None
        return (source, text) if text != target else None

    return make


def _cut(rng: random.Random, source: str, target: str) -> Pair | None:
    words = target.split()
    return (source, " ".join(words[: len(words) // 2])) if len(words) > 9 else None


def _compound(rng: random.Random, source: str, target: str) -> Pair | None:
    words = [word for word in source.lower().split() if len(word) > 3 and word.isalpha()]
    if len(words) < 2:
        return None
    one, other = rng.sample(words, 2)
    return f"{one} {other}", rng.choice((f"{one}{other}", f"{one}-{other}")).capitalize()


def _both(*shapes: str) -> Maker:
    """Put a text of one of the shapes behind both sides; where it has a bar, its halves."""

    def make(rng: random.Random, source: str, target: str) -> Pair:
        first, _, other = rng.choice(shapes).partition("|")
        return f"{source} {first}", f"{target} {other or first}"

    return make


def _one_of(*texts: str) -> Maker:
    """Put a text, or both its halves, in place of both sides."""

    def make(rng: random.Random, source: str, target: str) -> Pair:
        first, _, other = rng.choice(texts).partition("|")
        return first, other or first

    return make


_INVISIBLE = "\u200b\u00ad\ufeff\u200d\u2060\u0008\u001b"


def kinds(corpus: Sequence[Pair], foreign: Sequence[str]) -> dict[str, Kind]:
    """Return faults, and good pairs that look like faults.

    Args:
        corpus: gives further sentences.
        foreign: sentences in a third language.
    """
    return _wrong_texts(foreign) | _wrong_content(corpus) | _repairable() | _good()


def _wrong_texts(foreign: Sequence[str]) -> dict[str, Kind]:
    """Return faults of the language."""
    swapped = ("language", "script")
    return {
        "source in place of the target": Kind(_NOT_TRANSLATED, lambda r, s, t: (s, s)),
        "the same in lower case": Kind(
            _NOT_TRANSLATED, lambda r, s, t: (s, s.lower().rstrip(" ."))
        ),
        "target in place of the source": Kind(_NOT_TRANSLATED, lambda r, s, t: (t, t)),
        "sides swapped": Kind(swapped, lambda r, s, t: (t, s)),
        "target in a third language": Kind(swapped, lambda r, s, t: (s, r.choice(foreign))),
    }


def _wrong_content(corpus: Sequence[Pair]) -> dict[str, Kind]:
    """Return faults of the content."""
    return {
        "a digit changed": Kind(("numbers",), _digit),
        "an address changed": Kind(("urls",), _address),
        "tags on one side": Kind(("markup",), _marked(1)),
        "a side twice": Kind(("ratio",), lambda r, s, t: (s, f"{t} {t}")),
        "the last word over and over": Kind(
            ("ratio",), lambda r, s, t: (s, t + f" {t.rstrip(' .。').split()[-1]}" * 5)
        ),
        "another sentence added": Kind(
            ("ratio",), lambda r, s, t: (s, f"{t} {r.choice(corpus)[1]}")
        ),
        "half of the words cut off": Kind(("ratio",), _cut),
        "a side empty": Kind(("empty",), lambda r, s, t: (s, " ")),
        "a character lost (U+FFFD)": Kind(
            ("replacement",), lambda r, s, t: (s, _inserted(r, t, "\ufffd"))
        ),
    }


def _repairable() -> dict[str, Kind]:
    """Return faults that clean repairs."""
    makers: dict[str, Maker] = {
        "UTF-8 read as Latin-1": _encoding(1, "latin-1"),
        "UTF-8 read as Windows-1252": _encoding(1, "cp1252"),
        "the same twice over": _encoding(2, "cp1252"),
        "an invisible character": lambda r, s, t: (s, _inserted(r, t, r.choice(_INVISIBLE))),
        "odd blanks": lambda r, s, t: (
            s,
            t.replace(" ", r.choice(("\u2003", "  ", " \u2009")), 1) + " ",
        ),
        "the same tags on both sides": _marked(0, 1),
        "an entity on one side": lambda r, s, t: (f"{s} (A & B)", f"{t} (A &amp; B)"),
    }
    return {name: Kind(("repair",), make) for name, make in makers.items()}


def _good() -> dict[str, Kind]:
    """Return good pairs that look like faults."""
    makers: dict[str, Maker] = {
        "a compound": _compound,
        "a name or a term": _one_of(
            "Format",
            "Simple Mail Transfer Protocol",
            "Black Forest",
            "GNU Emacs",
            "UTF-8 codec",
        ),
        "code, options, paths": _one_of(
            "for (i = 0; i < n; i++) { sum += the[i]; }", "--with-all --no-name", "/a/of/the"
        ),
        "the same address": _both(
            "http://a.org/b.html",
            "<URL:https://a.org>",
            "<a@b.org>",
            "http://a.com/en/b|https://a.de/de/b",
            "https://en.wikipedia.org/wiki/A|https://de.wikipedia.org/wiki/B",
        ),
        "angle brackets": _both(
            "#include <stdio.h>", "<file>|<name>", "List<String>", "<i>x</i>", "3 < 4 & 5"
        ),
        "quotes": _both('"A"|»Ü«', '"x"|»ß«…', "(“oh”)|(„Öl“)", "'a'|« é »"),
        "numbers written otherwise": _both(
            "1,234.5|1.234,5",
            "12,000|12\u202f000",
            "5 thousand|5000",
            "4:30 pm|16:30",
            "3|III",
            "the 1990s|90",
            "2001-02-03|3.2.2001",
            "%s %d|%2$d %1$s",
        ),
    }
    return {f"good: {name}": Kind((), make) for name, make in makers.items()}


@dataclass
class Planted:
    """A corpus with faults."""

    pairs: list[Pair]
    names: dict[int, str] = field(default_factory=dict)
    """Names of kinds by index of the pair."""
    good: dict[int, Pair] = field(default_factory=dict)
    """What was there before."""


def plant(corpus: Sequence[Pair], made: Mapping[str, Kind], seed: int) -> Planted:
    """Put faults of each kind in random places, and shift a stretch."""
    rng = random.Random(seed)
    planted = Planted(list(corpus))
    start = len(corpus) // 2
    stretch = range(start, start + SHIFTED)
    for index in stretch:
        planted.pairs[index] = corpus[index][0], corpus[index - 1][1]
        planted.names[index] = "a stretch shifted by a line"
    indices = [index for index in range(len(corpus)) if index not in stretch]
    rng.shuffle(indices)
    for name, kind in made.items():
        done = 0
        for index in indices:
            if done == OF_A_KIND:
                break
            if index in planted.good or (pair := kind.make(rng, *corpus[index])) is None:
                continue
            planted.pairs[index], planted.names[index] = pair, name
            planted.good[index] = corpus[index]
            done += 1
    return planted


PAIRS = Path(__file__).with_name("doctor_pairs.tsv")


@dataclass
class Cleaned:
    """What clean made of a text, by index of the pair."""

    faults: dict[int, list[str]]
    repaired: dict[int, Pair]


def cleaned(pairs: Sequence[Pair], languages: tuple[str, str]) -> Cleaned:
    """Clean a text by the default filters."""
    wanted = frozenset(name for name, is_on in vars(Filters()).items() if is_on)
    # What is planted a hundred times recurs, and nothing is held out.
    wanted -= {"duplicate", "leak", "too_long"}
    settings = ExaminationConfig(wanted, 0, max_length=1000, languages=languages)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = folder / "text.source", folder / "text.target"
        for side, path in enumerate(paths):
            path.write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8", newline="\n")
        texts = {"train": Split(Corpus(paths, *languages))}
        clean(Checks(texts, settings), ["train"], folder / "out", repair=True)
        rejected, repaired = (
            [json.loads(line) for line in read_lines(folder / "out" / f"train.{what}.jsonl")]
            for what in ("rejected", "repaired")
        )
    return Cleaned(
        {row["line"] - 1: row["faults"] for row in rejected},
        {row["line"] - 1: (row["after"]["source"], row["after"]["target"]) for row in repaired},
    )


def _plain(pair: Pair) -> Pair:
    source, target = (" ".join(text.replace("&amp;", "&").split()) for text in pair)
    return source, target


def rows_of(planted: Planted, made: Mapping[str, Kind], result: Cleaned) -> list[list[str]]:
    """Return a row for each kind: how many, found, found by the right check."""
    indices: dict[str, list[int]] = defaultdict(list)
    for index, name in planted.names.items():
        indices[name].append(index)
    rows = []
    for name, those in indices.items():
        kind = made.get(name, Kind(("misaligned",), lambda r, s, t: None))
        if kind.checks == ("repair",):
            hits = sum(
                index not in result.faults
                and _plain(result.repaired.get(index, ("", "")))
                == _plain(planted.pairs[index] if "entity" in name else planted.good[index])
                for index in those
            )
        else:
            wanted = frozenset(kind.checks)
            hits = sum(
                bool(wanted.intersection(result.faults.get(index, ())))
                if wanted
                else index in result.faults
                for index in those
            )
        rows.append(
            [name, ", ".join(kind.checks) or "-", str(len(those)), f"{hits / len(those):.3f}"]
        )
    return rows


def precisions(planted: Planted, made: Mapping[str, Kind], result: Cleaned) -> list[list[str]]:
    """Return a row for each check: what it rejected, planted and not, and its precision."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for index, faults in result.faults.items():
        name = planted.names.get(index, "good: the corpus itself")
        for fault in faults:
            (wrong if name.startswith("good") else right)[fault] += 1
    return [
        [
            check,
            str(right[check]),
            str(wrong[check]),
            f"{right[check] / (right + wrong)[check]:.3f}",
        ]
        for check in sorted(right + wrong)
    ]


def by_eye(corpus: Sequence[Pair]) -> list[list[str]]:
    """Return a row for each label of `PAIRS`, cleaned behind a corpus."""
    rows = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    found = cleaned([*corpus, *((source, target) for _, source, target in rows)], ("en", "de"))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    said: Counter[str] = Counter()
    for index, (label, source, _) in enumerate(rows, start=len(corpus)):
        faults = found.faults.get(index, [])
        mended = not faults and index in found.repaired
        hit = mended if label == "mended" else bool(faults)
        counts[label]["pairs"] += 1
        counts[label]["hit"] += hit
        counts[label]["own"] += mended if label == "mended" else label in faults
        said.update(faults or (["mended"] if mended else []))
        if hit is (label == "good"):
            print(f"  {label}: {faults} {source}")
    return [
        [
            label,
            *(str(count[what]) for what in ("pairs", "hit", "own")),
            f"{count['own'] / said[label]:.3f}" if said[label] else "-",
        ]
        for label, count in counts.items()
    ]


def table(title: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table of Markdown."""
    head = [f"| {' | '.join(title)} |", f"|{' --- |' * len(title)}"]
    return [*head, *(f"| {' | '.join(row)} |" for row in rows)]


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").replace("\t", " ") for line in file]


def measured(
    corpus: Sequence[Pair], languages: tuple[str, str], foreign: Sequence[str], seed: int
) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of both tables of a corpus."""
    made = kinds(corpus, foreign)
    planted = plant(corpus, made, seed)
    found = cleaned(planted.pairs, languages)
    for index, faults in found.faults.items():
        if index not in planted.names:
            print("  of the corpus:", faults, *planted.pairs[index], sep=" | ")
    return rows_of(planted, made, found), precisions(planted, made, found)


def main() -> None:
    """Measure, print, and write the tables if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="a TSV file in place of the three corpora")
    parser.add_argument("--languages", nargs=2, default=("en", "de"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    root = arguments.data_root
    multi30k = {side: _lines(root / f"multi30k/train.{side}.gz") for side in ("en", "de", "fr")}
    tanaka = [_lines(root / f"tanaka_enja/train.{side}.gz") for side in ("en", "ja")]
    german = list(zip(multi30k["en"], multi30k["de"], strict=True))
    corpora: dict[str, tuple[Sequence[Pair], tuple[str, str], Sequence[str]]] = {
        "en-de": (german, ("en", "de"), multi30k["fr"]),
        "en-fr": (
            list(zip(multi30k["en"], multi30k["fr"], strict=True)),
            ("en", "fr"),
            multi30k["de"],
        ),
        "en-ja": (list(zip(*tanaka, strict=True)), ("en", "ja"), multi30k["de"]),
    }
    if arguments.text is not None:
        text = [line.split("\t") for line in read_lines(arguments.text)]
        source, target = arguments.languages
        third = multi30k["fr" if target != "fr" else "de"]
        corpora = {f"{source}-{target}": ([(s, t) for s, t in text], (source, target), third)}
    recalls: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}
    for index, (name, (corpus, languages, foreign)) in enumerate(corpora.items()):
        print(name)
        rows, checks = measured(corpus, languages, foreign, arguments.seed)
        for kind, own, _, share in rows:
            recalls.setdefault(kind, [kind, own, *["-"] * len(corpora)])[2 + index] = share
        for check, right, wrong, precision in checks:
            row = found.setdefault(check, [check, *["-"] * len(corpora)])
            row[1 + index] = f"{right} / {wrong}: {precision}"
    lines = table(["planted", "found by", *corpora], recalls.values())
    lines += ["", *table(["check", *corpora], found.values())]
    if arguments.text is None:
        title = ["label", "pairs", "rejected or mended", "by its own check", "precision"]
        lines += ["", *table(title, by_eye(german))]
    print("\n".join(lines))
    if arguments.write is not None:
        write_between(arguments.write, "doctor", lines)


if __name__ == "__main__":
    main()
