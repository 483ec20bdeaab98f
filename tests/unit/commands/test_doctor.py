"""``doctor`` and ``clean`` from a program: all that the commands do, and nothing is printed."""

from collections import Counter
from pathlib import Path

import pytest

from transformer import CleanConfig, DataConfig, DoctorConfig, InputError, Thresholds, clean, doctor


@pytest.fixture
def data(tmp_path: Path) -> DataConfig:
    pairs = [("a dog runs", "ein Hund läuft"), ("a cat", ""), ("an ape", "ein  Affe")]
    (tmp_path / "odd.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs))
    return DataConfig(corpus="files", train=str(tmp_path / "odd.tsv"), cache=str(tmp_path))


def test_a_corpus_is_examined_and_cleaned(
    data: DataConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert doctor(DoctorConfig(data=data))["exceeded"] == ["train: empty"]
    cleaned = clean(CleanConfig(data=data, output=tmp_path / "out"))
    train = cleaned.splits["train"]
    assert (train.kept, train.faults, train.repairs) == (2, Counter(empty=1), Counter(blanks=1))
    assert (tmp_path / "out" / "odd.tsv").read_text().splitlines()[1] == "an ape\tein Affe"
    assert doctor(DoctorConfig(data=data, thresholds=Thresholds(empty=0.5)))["exceeded"] == []
    assert capfd.readouterr() == ("", "")


def test_keys_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^models=\[a\] must be two; give models=\[RUN,REVERSE\]"):
        CleanConfig(output=tmp_path, models=("a",))
    with pytest.raises(InputError, match=r"^thresholds\.empty=2\.0 must be from 0 to 1"):
        Thresholds(empty=2.0)
