"""Pictures of digits: none of test is in training, and the words are what they show."""

import sys
from pathlib import Path

import numpy as np
import pytest

from scripts import digits as script
from scripts.digits import LENGTH, SPLITS, WORDS, Digits, main, strings, svm_accuracy, write

COUNT = {"train": 40, "validation": 10, "test": 20}


def random_digits() -> Digits:
    generator = np.random.default_rng(1)
    images = generator.integers(0, 17, (1797, 8, 8)).astype(float)
    return Digits(images, generator.integers(0, 10, 1797).tolist())


def ink(digits: Digits, number: int) -> np.ndarray:
    """Black on white, in 256 grays."""
    return np.round(255 - digits.images[number] * 255 / 16)


def read(file: Path) -> list[list[str]]:
    return [line.split("\t") for line in file.read_text("utf-8").splitlines()]


def test_the_splits_share_no_picture_and_leave_none_out() -> None:
    assert sorted(number for part in SPLITS.values() for number in part) == list(range(1797))


@pytest.mark.parametrize("split", SPLITS)
def test_a_string_has_pictures_of_its_split(split: str) -> None:
    rows = list(strings(split, 500))
    drawn = {number for row in rows for number in row.numbers}
    assert drawn <= set(SPLITS[split]) and len(drawn) > len(SPLITS[split]) / 2
    assert {len(row.numbers) for row in rows} == {LENGTH}
    assert rows[:100] == list(strings(split, 100))


def test_the_pictures_show_what_the_lists_say(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    digits = random_digits()
    write(tmp_path, digits, COUNT)
    sizes = {
        "train": 800 + 40,
        "validation": 98 + 10,
        "test_single": 899,
        "test_four": 20,
    }
    assert {file.stem: len(read(file)) for file in tmp_path.glob("*.tsv")} == sizes
    paths = [path for name in sizes for path, _ in read(tmp_path / f"{name}.tsv")]
    assert len(paths) == len(set(paths))

    [path, words] = read(tmp_path / "test_single.tsv")[-1]
    pixels = np.asarray(image.open(tmp_path / path))
    assert np.array_equal(pixels, ink(digits, 1796))
    assert words == WORDS[digits.labels[1796]]

    for row, [path, words] in zip(
        strings("test", 20), read(tmp_path / "test_four.tsv"), strict=True
    ):
        pixels = np.asarray(image.open(tmp_path / path))
        assert pixels.shape == (8, 8 * LENGTH + sum(row.gaps))
        ends = np.cumsum([8 + gap for gap in row.gaps])
        for number, end, word in zip(row.numbers, ends, words.split(" "), strict=True):
            assert np.array_equal(pixels[:, end - 8 : end], ink(digits, number))
            assert (pixels[:, : ends[0] - 8] == 255).all()
            assert word == WORDS[digits.labels[number]]


def test_the_baseline_is_as_good_as_in_the_example_of_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    single, four = svm_accuracy(Digits.load(), range(898), 1000)
    # The classification report of the example says 0.97.
    assert round(single) == 97
    assert 80 < four < single


def test_without_scikit_learn_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["digits", str(tmp_path / "new")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "scikit-learn is not installed: pip install scikit-learn\n"
    assert not (tmp_path / "new").exists()
