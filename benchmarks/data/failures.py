"""Precision, recall, false alarms and time of the flags of failures.

    python benchmarks/data/failures.py --data-root FOLDER [--write PAGE]
    python benchmarks/data/failures.py --data-root FOLDER --run RUN

FOLDER holds multi30k and tanaka_enja. Failures are made by rule from the pocket corpus, 200 outputs
of each kind, half of them right. False alarms are flags of the references of the corpora, with
thresholds of the first 10,000 training pairs. With ``--run``, of Multi30k from English to German,
it compares the time of the flags of the validation text with that of its beam search instead.
"""

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarks.support.records import write_between
from transformer.data.corpora.resolve import pocket_text
from transformer.data.text.lines import read_lines
from transformer.decoding.translator import Translator
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.monitor import Failures, as_outputs, find_failures
from transformer.quality.failures.thresholds import SAMPLE, Thresholds
from transformer.settings.data import DataConfig

Pair = tuple[str, str]
Spoil = Callable[[random.Random, str, str, int], str]
"""From a source, its translation and the number of the sentence to an output that fails."""


@dataclass(frozen=True)
class Labeled:
    """An output, whether it fails, and the right translation."""

    source: str
    output: Output
    fails: bool
    reference: str


def _shortened(rng: random.Random, source: str, target: str, index: int) -> str:
    words = target.split()
    return " ".join(words[: max(1, round(len(words) * 0.4))])


def _repeated(rng: random.Random, source: str, target: str, index: int) -> str:
    """A word, a phrase or the end of the sentence again and again, or one in a word."""
    words = target.split()
    at = rng.randrange(len(words))
    length = rng.randint(1, 4)
    times = rng.randint(3, 8)
    if index % 4 == 3:
        return f"{target} {words[at] * times}"
    return " ".join(words[:at] + words[at : at + length] * times)


def _copied(rng: random.Random, source: str, target: str, index: int) -> str:
    """As it is; in lower case; without its last sign."""
    return (source, source.lower(), source.rstrip(".?!"))[index % 3]


def _unknown(rng: random.Random, source: str, target: str, index: int) -> str:
    words = target.split()
    words[rng.randrange(len(words))] = ("\u2047", "<unk>", "\ufffd")[index % 3]
    return " ".join(words)


def _changed_number(rng: random.Random, source: str, target: str, index: int) -> str:
    """Another number of as many digits, or none."""
    number = target.partition(":")[0].split()[1]
    return target.replace(number, ("", str(int(number) % 900 + 100))[index % 2])


def _lost_name(rng: random.Random, source: str, target: str, index: int) -> str:
    return target.replace(_NAMES[index % len(_NAMES)], ("sie", "Xaver")[index % 2])


def _lost_placeholder(rng: random.Random, source: str, target: str, index: int) -> str:
    """Without it, with another one, or with a blank inside."""
    mark = _MARKS[index % len(_MARKS)]
    return target.replace(mark, ("", "{name}", f"{mark[:1]} {mark[1:]}")[index % 3])


_NAMES = ("Oslo", "Kowalski", "Lisboa", "Nakamura", "Quito")
_MARKS = ("{0}", "https://example.org/a?b=1", "%s", "<x>", "mail@example.org", "${count}", "%(n)d")
_OTHER_LANGUAGES = (
    "le chien de mon frère dort dans la maison avec un petit chat",
    "la profesora de mis hijos trabaja todos los días en la escuela",
    "il medico della città parla spesso con la madre di un bambino",
    "de vader van mijn vriend leest elke avond een boek in de tuin",
    "the brother of my friend has a new house and a very old car",
    "мой брат работает в большом городе и редко видит наших друзей",
)


def _foreign(rng: random.Random, source: str, target: str, index: int) -> str:
    """Words of a sentence in another language, in another order."""
    words = _OTHER_LANGUAGES[index % len(_OTHER_LANGUAGES)].split()
    middle = rng.randrange(2, len(words) - 2)
    return " ".join([*words[middle:], *words[:middle]]).capitalize() + "."


def labeled(pairs: Sequence[Pair], count: int = 200, seed: int = 1) -> dict[str, list[Labeled]]:
    """For each flag of a text ``count`` outputs; every second one is the translation itself."""
    rng = random.Random(seed)
    taken = cycle(pairs)
    numbered = [(f"Room {n}: {s}", f"Zimmer {n}: {t}") for n, (s, t) in enumerate(pairs, 100)]
    named = [
        (f"{s} {name} says so, and {name} knows.", f"{t} Das sagt {name}, und {name} weiß es.")
        for (s, t), name in zip(pairs, cycle(_NAMES), strict=False)
    ]
    marked = [
        (f"See {mark}: {s}", f"Siehe {mark}: {t}")
        for (s, t), mark in zip(pairs, cycle(_MARKS), strict=False)
    ]
    long = [pair for pair in pairs if len(pair[1].split()) > 5]
    kinds: dict[str, tuple[Sequence[Pair], Spoil]] = {
        "empty": (pairs, lambda r, s, t, index: ("", " ", "...", "\u200a")[index % 4]),
        "repetition": (pairs, _repeated),
        "copy": (pairs, _copied),
        "wrong_language": (pairs, _foreign),
        "under_translation": (long, _shortened),
        "over_translation": (long, lambda r, s, t, index: f"{t} {next(taken)[1]} {next(taken)[1]}"),
        "numbers": (numbered, _changed_number),
        "names": (named, _lost_name),
        "placeholders": (marked, _lost_placeholder),
        "unknown": (pairs, _unknown),
    }
    made = {name: _made(rng, *kind, count) for name, kind in kinds.items()}
    # Three of six sources have the output of the first.
    sixes = [long[start : start + 6] for start in range(0, count, 6)]
    made["detached"] = [
        Labeled(source, Output(six[0][1] if index < 3 else target), index < 3, target)
        for six in sixes
        for index, (source, target) in enumerate(six)
    ]
    return made


def _made(rng: random.Random, pairs: Sequence[Pair], spoil: Spoil, count: int) -> list[Labeled]:
    found = []
    for index, (source, target) in zip(range(count), pairs, strict=False):
        fails = index % 2 == 0
        text = spoil(rng, source, target, index) if fails else target
        found.append(Labeled(source, Output(text), fails, target))
    return found


CORPORA = {
    "Multi30k en-de": ("multi30k/{}.en.gz", "multi30k/{}.de.gz"),
    "Multi30k de-en": ("multi30k/{}.de.gz", "multi30k/{}.en.gz"),
    "Tanaka en-ja": ("tanaka_enja/{}.en.gz", "tanaka_enja/{}.ja.gz"),
}
SPLITS = {
    "multi30k": {"validation": "val", "test": "test_2016_flickr"},
    "tanaka_enja": {"validation": "dev", "test": "test"},
}


def read_pairs(*files: Path) -> list[Pair]:
    """The sentence pairs of two files."""
    return list(zip(*map(read_lines, files), strict=True))


def pocket_detector() -> Detector:
    """The detector of a run on pocket."""
    pairs = read_pairs(*(pocket_text(language)["train"] for language in ("en", "de")))
    return Detector(Thresholds.fit(pairs[:SAMPLE], DataConfig(source="en", target="de")))


def flagged(detector: Detector, made: Sequence[Labeled]) -> Failures:
    """The flags of outputs that were made."""
    sources = [output.source for output in made]
    references = [(output.reference,) for output in made]
    return find_failures(detector, sources, references, [output.output for output in made])


def precision_and_recall(
    detector: Detector, kinds: Mapping[str, Sequence[Labeled]]
) -> dict[str, tuple[float, float]]:
    """Of each flag on the outputs of its kind."""
    found = {}
    for name, made in kinds.items():
        lines = set(flagged(detector, made).lines(name))
        right = {index for index, one in enumerate(made) if one.fails}
        found[name] = len(lines & right) / max(1, len(lines)), len(lines & right) / len(right)
    return found


def false_alarms(root: Path, corpus: str, split: str) -> tuple[int, int, Counter[str]]:
    """Number of references, of those with any flag, and of each flag."""
    names = SPLITS[CORPORA[corpus][0].partition("/")[0]]
    training, pairs = (
        read_pairs(*(root / file.format(name) for file in CORPORA[corpus]))
        for name in ("train", names[split])
    )
    source, _, target = corpus.split()[1].partition("-")
    detector = Detector(Thresholds.fit(training[:SAMPLE], DataConfig(source=source, target=target)))
    sources, texts = zip(*pairs, strict=True)
    outputs = list(map(Output, texts))
    flags = find_failures(detector, sources, [(text,) for text in texts], outputs).hypotheses
    return len(flags), sum(map(bool, flags)), Counter(flag for one in flags for flag in one)


def tables(root: Path) -> list[str]:
    """Lines of both tables, in Markdown."""
    pocket = read_pairs(*(pocket_text(language)["test"] for language in ("en", "de")))
    lines = ["| flag | precision | recall |", "| --- | --- | --- |"]
    for name, (precision, recall) in precision_and_recall(
        pocket_detector(), labeled(pocket)
    ).items():
        lines.append(f"| `{name}` | {precision:.3f} | {recall:.3f} |")
    lines += ["", "| references | sentences | with a flag | flags |", "| --- | --- | --- | --- |"]
    for corpus in CORPORA:
        for split in ("validation", "test"):
            total, some, counts = false_alarms(root, corpus, split)
            shown = ", ".join(f"`{name}` {count}" for name, count in counts.most_common())
            lines.append(f"| {corpus} {split} | {total} | {some / total:.2%} | {shown} |")
    return lines


def time_ratio(root: Path, run: Path) -> str:
    """CPU seconds of a beam search of the validation text, and of the flags of its outputs."""
    pairs = read_pairs(root / "multi30k/val.en.gz", root / "multi30k/val.de.gz")
    sources, texts = (list(side) for side in zip(*pairs, strict=True))
    translator = Translator.load(run)
    translator.translate(sources[:50])
    start = time.process_time()
    found = translator.translate(sources)
    search = time.process_time() - start
    detector = Detector(Thresholds.read(run, DataConfig(source="en", target="de")), detects=False)
    references = [(text,) for text in texts]
    seconds = []
    known = None
    for _ in range(3):
        start = time.process_time()
        failures = find_failures(
            detector, sources, references, as_outputs(found, translator), known
        )
        seconds.append(time.process_time() - start)
        known = failures.references
    shown = ", ".join(f"{one:.3f} s ({one / search:.2%})" for one in seconds)
    return f"search {search:.2f} s; flags with references, then twice without: {shown}\n"


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--write", type=Path, help="page with the table between its markers")
    options = parser.parse_args()
    if options.run is not None:
        print(time_ratio(options.data_root, options.run), end="")
        return
    lines = tables(options.data_root)
    print(*lines, sep="\n")
    if options.write is not None:
        write_between(options.write, "failures", lines)


if __name__ == "__main__":
    main()
