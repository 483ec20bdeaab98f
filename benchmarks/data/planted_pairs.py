"""Plant faults in parallel text, to see which of them ``clean`` with two models finds.

    python benchmarks/data/planted_pairs.py SOURCE TARGET OUTPUT [--pairs 2000]

Of the first pairs of two plain files, a tenth gets the target of another pair, and another tenth
loses the second half of its target. Writes OUTPUT.source and OUTPUT.target, and OUTPUT.planted with
the number of each damaged line and its fault. The seed is fixed.
"""

import argparse
import random
from itertools import islice
from pathlib import Path

SEED = 1


def main() -> None:
    """Plant the faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("output")
    parser.add_argument("--pairs", type=int, default=2000)
    arguments = parser.parse_args()
    with (
        open(arguments.source, encoding="utf-8") as source_lines,
        open(arguments.target, encoding="utf-8") as target_lines,
    ):
        pairs = [
            (a.rstrip("\n"), b.rstrip("\n"))
            for a, b in islice(zip(source_lines, target_lines, strict=True), arguments.pairs)
        ]
    order = list(range(len(pairs)))
    random.Random(SEED).shuffle(order)
    part = len(pairs) // 10
    moved = order[:part]
    halved = order[part : 2 * part]
    targets = [target for _, target in pairs]
    for index, replacement in zip(moved, [*moved[1:], *moved[:1]], strict=True):
        targets[index] = pairs[replacement][1]
    for index in halved:
        words = pairs[index][1].split()
        targets[index] = " ".join(words[: len(words) // 2])
    faults = [(index + 1, "another target") for index in moved] + [
        (index + 1, "half") for index in halved
    ]
    for name, lines in (
        ("source", (source for source, _ in pairs)),
        ("target", targets),
        ("planted", (f"{number} {fault}" for number, fault in sorted(faults))),
    ):
        Path(f"{arguments.output}.{name}").write_text(
            "".join(f"{line}\n" for line in lines), "utf-8"
        )


if __name__ == "__main__":
    main()
