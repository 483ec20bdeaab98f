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
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data.doctor_faults import Kind, Pair, Planted, kinds, plant
from benchmarks.support.page import write_between
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus, read_lines
from transformer.quality.check import ExaminationConfig
from transformer.quality.cleaning import clean
from transformer.quality.corpus_checks import Checks
from transformer.settings.corpora import Filters

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


def rows_of(planted: Planted, made: Mapping[str, Kind], found: Cleaned) -> list[list[str]]:
    """Return a row for each kind: how many, found, found by the right check."""
    indices: dict[str, list[int]] = defaultdict(list)
    for index, name in planted.names.items():
        indices[name].append(index)
    rows = []
    for name, those in indices.items():
        kind = made.get(name, Kind(("misaligned",), lambda r, s, t: None))
        if kind.checks == ("repair",):
            hits = sum(
                index not in found.faults
                and _plain(found.repaired.get(index, ("", "")))
                == _plain(planted.pairs[index] if "entity" in name else planted.good[index])
                for index in those
            )
        else:
            wanted = frozenset(kind.checks)
            hits = sum(
                bool(wanted.intersection(found.faults.get(index, ())))
                if wanted
                else index in found.faults
                for index in those
            )
        rows.append(
            [name, ", ".join(kind.checks) or "-", str(len(those)), f"{hits / len(those):.3f}"]
        )
    return rows


def precisions(planted: Planted, made: Mapping[str, Kind], found: Cleaned) -> list[list[str]]:
    """Return a row for each check: what it rejected, planted and not, and its precision."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for index, faults in found.faults.items():
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
