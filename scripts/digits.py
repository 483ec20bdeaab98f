"""The handwritten digits of scikit-learn as pictures: single ones, and four in a row.

    python -m scripts.digits FOLDER [--strings 8000] [--svm]

The 1,797 pictures of ``sklearn.datasets.load_digits`` have 8 by 8 pixels. The second half is test,
as in scikit-learn's example "Recognizing hand-written digits"; the first half is train and, at its
end, validation. A string has four pictures of one split, with up to two blank columns before each:
no picture of test is in a string of train. The same call makes the same pictures. FOLDER gets

- ``pictures/``: PNG, 8 pixels high, black on white;
- ``train.tsv`` and ``validation.tsv``: lines of a path, relative to FOLDER, and the words, such as
  "seven" and "seven two zero one": single digits and strings;
- ``test_single.tsv`` and ``test_four.tsv``: single digits, and strings.

``--svm`` prints the accuracy of scikit-learn's support vector machine, with the gamma of that
example, on both tests. It knows nothing of models: ``experiment=digits`` trains on FOLDER.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transformer.common.errors import InputError
from transformer.common.files import write_text_whole
from transformer.common.packages import require_package

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPLITS: Mapping[str, range] = {
    "train": range(800),
    "validation": range(800, 898),
    "test": range(898, 1797),
}
"""Numbers of the pictures in scikit-learn's order."""
STRINGS: Mapping[str, int] = {"train": 8_000, "validation": 400, "test": 1_000}
LENGTH = 4
SEED = 1
WIDEST_GAP = 2
BRIGHTEST = 16
"""The brightest pixel of scikit-learn's pictures, which are white on black."""

Pixels = NDArray[np.float64]


@dataclass(frozen=True)
class Digits:
    """Pictures, ``number 8 8``, and the digits that they show."""

    images: Pixels
    labels: Sequence[int]

    @classmethod
    def load(cls) -> Digits:
        """Those of scikit-learn."""
        from sklearn.datasets import load_digits

        loaded = load_digits()
        return cls(loaded.images, loaded.target.tolist())

    def words(self, numbers: Sequence[int]) -> str:
        """What pictures beside each other say."""
        return " ".join(WORDS[self.labels[number]] for number in numbers)

    def picture(self, numbers: Sequence[int], gaps: Sequence[int]) -> Pixels:
        """Pictures beside each other, with blank columns before each."""
        columns = [
            np.pad(self.images[number], ((0, 0), (gap, 0)))
            for number, gap in zip(numbers, gaps, strict=True)
        ]
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class Row:
    """The numbers of pictures that stand in one picture, and the blank columns before each."""

    numbers: tuple[int, ...]
    gaps: tuple[int, ...]


def singles(split: str) -> Iterator[Row]:
    """Each picture of a split."""
    for number in SPLITS[split]:
        yield Row((number,), (0,))


def strings(split: str, count: int) -> Iterator[Row]:
    """Rows of pictures that are drawn from a split."""
    generator = random.Random(f"{SEED} {split}")
    for _ in range(count):
        numbers = generator.choices(SPLITS[split], k=LENGTH)
        gaps = generator.choices(range(WIDEST_GAP + 1), k=LENGTH)
        yield Row(tuple(numbers), tuple(gaps))


def write(folder: Path, digits: Digits, count: Mapping[str, int]) -> None:
    """Write the pictures and lists; ``count`` has the strings of each split."""
    rows = {
        (split, kind): list(drawn)
        for split in SPLITS
        for kind, drawn in (("single", singles(split)), ("four", strings(split, count[split])))
    }
    lists: dict[str, list[str]] = {}
    for (split, kind), drawn in rows.items():
        name = f"test_{kind}" if split == "test" else split
        lists.setdefault(name, []).extend(_write_pictures(folder, f"{split}_{kind}", digits, drawn))
    for name, lines in lists.items():
        write_text_whole(folder / f"{name}.tsv", "".join(lines))


def _write_pictures(folder: Path, name: str, digits: Digits, rows: Sequence[Row]) -> Iterator[str]:
    """Write pictures; yield their lines."""
    from PIL import Image

    (folder / "pictures" / name).mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        path = Path("pictures", name, f"{number:05}.png")
        pixels = 255 * (1 - digits.picture(row.numbers, row.gaps) / BRIGHTEST)
        Image.fromarray(pixels.round().astype(np.uint8)).save(folder / path)
        yield f"{path}\t{digits.words(row.numbers)}\n"


def svm_accuracy(digits: Digits, training: range, count: int) -> tuple[float, float]:
    """Accuracy in percent of the support vector machine: of single digits, and of strings.

    It reads the pictures of a string one by one, so it need not find them; a string is right if
    all are.
    """
    from sklearn.svm import SVC

    images = digits.images.reshape(len(digits.images), -1)  # number 8 8 -> number (8 8)
    machine = SVC(gamma=0.001).fit(images[training], np.array(digits.labels)[training])
    right = machine.predict(images) == digits.labels
    whole = [right[list(row.numbers)].all() for row in strings("test", count)]
    return 100 * float(right[SPLITS["test"]].mean()), 100 * float(np.mean(whole))


def main() -> None:
    """Write to the folder that is given."""
    parser = argparse.ArgumentParser(description="Write pictures of handwritten digits.")
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--strings", type=int, default=STRINGS["train"], help="of train")
    parser.add_argument("--svm", action="store_true", help="print scikit-learn's accuracy")
    arguments = parser.parse_args()
    try:
        if arguments.strings < 1:
            raise InputError("--strings is 1 or more")
        if find_spec("sklearn") is None:
            raise InputError("scikit-learn is not installed: pip install scikit-learn")
        require_package("PIL", "scripts.digits", "image")
        digits = Digits.load()
        arguments.folder.mkdir(parents=True, exist_ok=True)
        write(arguments.folder, digits, {**STRINGS, "train": arguments.strings})
    except (InputError, OSError) as error:
        parser.exit(2, f"{error}\n")
    if arguments.svm:
        learned = {"train": SPLITS["train"], "train and validation": range(SPLITS["test"].start)}
        for name, training in learned.items():
            single, four = svm_accuracy(digits, training, STRINGS["test"])
            print(f"SVM on {name}: {single:.2f} % of single digits, {four:.2f} % of strings")


if __name__ == "__main__":
    main()
