"""Any text can be examined and cleaned; no line of it is lost, and no report breaks a terminal."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.quality.texts import examination_config, written
from transformer.common.errors import InputError
from transformer.data.text.parallel import Corpus, read_lines
from transformer.quality.cleaning import clean
from transformer.quality.corpus_checks import Checks
from transformer.quality.examination import examine, example_lines, to_json
from transformer.settings.corpora import CHECKS

# U+0345, a mark whose case and composition change its place; and what the checks look for.
ODD = ["a", "B", " ", "\t", "ß", "é", "e\u0301", "\u0345", "İ", "日本", "Д", "\u200b", "\ufffd"]
ODD += ["<b>", "&amp;", "Ã¤", "ﬁ", "\U0001f600", "\ud7ff", "\x00", "\u2028", "…", "٣"]
TEXT = st.lists(
    st.sampled_from(ODD)
    | st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=4),
    max_size=8,
).map("".join)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=8)


@settings(max_examples=20, deadline=None)
@given(PAIRS, PAIRS)
def test_any_text_can_be_examined_and_cleaned(
    train: list[tuple[str, str]], test: list[tuple[str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        splits = written({"train": train, "test": test}, folder / "in")
        examination = examine(splits, examination_config())
        assert examination.pairs == {"train": len(train), "test": len(test)}
        assert all(0 <= found.count <= found.total for found in examination.findings)
        report = to_json(examination, splits, dict.fromkeys(CHECKS, 0.0))
        for line in example_lines(report):
            assert line.removeprefix(name).isprintable()
        json.dumps(report).encode()
        few = ("empty", "duplicate", "markup")
        for out, wanted, repair in (
            ("out", CHECKS, False),
            ("mended", CHECKS, True),
            ("few", few, True),
        ):
            try:
                checks = Checks(splits, examination_config(wanted))
                done = clean(checks, ["train"], folder / out, repair=repair)["train"]
            except InputError as error:
                assert str(error).startswith("nothing is written: train: 0 of ")
                assert not (folder / out).exists()
                continue
            kept = list(Corpus((folder / out / "train.en", folder / out / "train.de"), "en", "de"))
            refused = rows_of(folder / out / "train.rejected.jsonl")
            assert (len(kept), len(refused)) == (done.kept, done.rejected)
            after: dict[int, tuple[str, str]] = {}
            if repair:
                repaired = rows_of(folder / out / "train.repaired.jsonl")
                after = {line: sides(row["after"]) for line, row in repaired.items()}
                assert all(sides(row) == train[line - 1] for line, row in repaired.items())
            left = iter(kept)
            for line, pair in enumerate(train, start=1):
                if line in refused:
                    assert sides(refused[line]) == pair
                else:
                    assert next(left) == after.get(line, pair)


def rows_of(path: Path) -> dict[int, dict[str, Any]]:
    return {row["line"]: row for row in map(json.loads, read_lines(path))}


def sides(row: dict[str, str]) -> tuple[str, str]:
    return row["source"], row["target"]
