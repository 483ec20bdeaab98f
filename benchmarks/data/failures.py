"""Precision, recall, false alarms and time of the flags of failures.

    python benchmarks/data/failures.py --data-root FOLDER [--write PAGE]
    python benchmarks/data/failures.py --data-root FOLDER --run RUN

FOLDER holds multi30k and tanaka_enja. Failures are made by rule from the pocket corpus, 200 outputs
of each kind, half of them right. False alarms are flags of the references of the corpora, with
thresholds of the first 10,000 training pairs. With ``--run``, of Multi30k from English to German,
it compares the time of the flags of the validation text with that of its beam search instead.
"""

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.data.failure_kinds import Labeled, Pair, labeled
from benchmarks.support.page import write_between
from transformer.data.corpora.resolve import pocket_text
from transformer.data.text.lines import read_lines
from transformer.decoding.translator import Translator
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.monitor import Failures, as_outputs, find_failures
from transformer.quality.failures.thresholds import SAMPLE, Thresholds
from transformer.settings.data import DataConfig

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
    sources, references = [one.source for one in made], [(one.reference,) for one in made]
    return find_failures(detector, sources, references, [one.output for one in made])


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
