"""Every line is either kept or rejected, and what is kept has nothing wrong with it."""

import gzip
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.data.corpora import data_config
from tests.unit.quality.texts import (
    examination_config,
    planted_texts,
    written,
)
from transformer.common.errors import InputError
from transformer.data.corpora.split import Split
from transformer.data.text.parallel import Corpus, read_lines
from transformer.quality.cleaning import CleanedSplit, choose_pairs, clean
from transformer.quality.corpus_checks import Checks
from transformer.quality.examination import given_texts
from transformer.settings.corpora import CHECKS

WANTED = frozenset(CHECKS) - {"several_targets", "several_sources"}


def cleaned(
    texts: dict[str, Split],
    folder: Path,
    wanted: frozenset[str] = WANTED,
    *,
    repair: bool = False,
) -> dict[str, CleanedSplit]:
    checks = Checks(texts, examination_config(tuple(wanted)))
    return clean(checks, ["train"], folder, repair=repair)


def rejected(folder: Path) -> dict[int, dict[str, object]]:
    rows = map(json.loads, read_lines(folder / "train.rejected.jsonl"))
    return {row["line"]: row for row in rows}


def test_faults_are_rejected_and_the_worst_by_cross_entropy(tmp_path: Path) -> None:
    texts, where = planted_texts()
    splits = written(texts, tmp_path / "in")
    clean_split = cleaned(splits, tmp_path / "clean")["train"]
    clean_pairs = list(
        Corpus((tmp_path / "clean/train.en", tmp_path / "clean/train.de"), "en", "de")
    )
    refused = rejected(tmp_path / "clean")
    assert (clean_split.kept, clean_split.rejected) == (len(clean_pairs), len(refused))
    for check in ("empty", "copy", "duplicate", "markup", "mojibake", "too_long", "language"):
        assert check in refused[where[check][1]]["faults"], check  # type: ignore[operator]
    # Both are said of the pair that is in the test text.
    assert "leak" in refused[60]["faults"]  # type: ignore[operator]
    seen: list[tuple[str, str]] = []

    def forward(pairs: Sequence[tuple[str, str]]) -> list[float]:
        seen.extend(pairs)
        return [len(target) / 10 for _, target in pairs]

    checks = Checks(splits, examination_config(tuple(WANTED)))
    drop = partial(choose_pairs, forward, lambda pairs: [2.0] * len(pairs), 0.75)
    done = clean(checks, ["train"], tmp_path / "out", drop, repair=False)["train"]
    # Only pairs without faults are judged.
    assert seen == clean_pairs
    assert done.kept == round(0.75 * clean_split.kept) == 625
    kept = list(Corpus((tmp_path / "out/train.en", tmp_path / "out/train.de"), "en", "de"))
    refused = rejected(tmp_path / "out")
    worse = [row for row in refused.values() if row["faults"] == ["cross_entropy"]]
    assert done.faults["cross_entropy"] == len(worse) == clean_split.kept - done.kept
    score = {target: abs(len(target) / 10 - 2) + (len(target) / 10 + 2) / 2 for _, target in seen}
    lowest = min(score[str(row["target"])] for row in worse)
    assert max(score[target] for _, target in kept) <= lowest
    assert worse[0]["cross_entropy"]["score"] == round(score[str(worse[0]["target"])], 4)  # type: ignore[index]


# What is wrong with the characters of a target, its repair, and the text as it should be.
MENDED = [
    ("der\u200b klei\u00adne \ufeffHund", ["invisible"], "der kleine Hund"),
    ("der schÃ¶ne Hund", ["encoding"], "der schöne Hund"),
    ("der\u2003kleine  Hund ", ["blanks"], "der kleine Hund"),
    ("Hund &amp; Katze", ["entities"], "Hund & Katze"),
    ("Hund&emsp;&amp;&shy; Katze", ["entities", "invisible", "blanks"], "Hund & Katze"),
]


def test_the_same_markup_is_removed_and_other_markup_rejected(tmp_path: Path) -> None:
    texts = {
        "train": [
            ("a <b>small</b> dog", "ein <b>kleiner</b> Hund"),
            ('a <a href="x">dog</a><br>', 'ein <a href="y">Hund</a><br/>'),
            ("&lt;p&gt;Dogs &amp;amp; cats", "&lt;p&gt;Hunde und&nbsp;Katzen"),
            ("if a < b I <3 it", "wenn a < b, ich <3 es"),
            ("the big dog", "der <b>große</b> Hund"),
            ("the <b>old</b> dog", "der <i>alte</i> Hund"),
            ('a dog <a href="', 'ein Hund <a href="'),
        ]
    }
    splits, wanted = written(texts, tmp_path / "in"), frozenset({"markup", "markup_both"})
    cleaned(splits, tmp_path / "out", wanted, repair=True)
    kept = Corpus((tmp_path / "out/train.en", tmp_path / "out/train.de"), "en", "de")
    assert list(kept) == [
        ("a small dog", "ein kleiner Hund"),
        ("a dog", "ein Hund"),
        ("Dogs & cats", "Hunde und Katzen"),
        texts["train"][3],
    ]
    repaired = map(json.loads, read_lines(tmp_path / "out/train.repaired.jsonl"))
    assert [row["repairs"] for row in repaired] == [
        ["markup"],
        ["markup", "blanks"],
        ["entities", "markup", "blanks"],
    ]
    faults = [row["faults"] for row in rejected(tmp_path / "out").values()]
    assert faults == [["markup"], ["markup"], ["markup_both"]]


@pytest.mark.parametrize("name", ["text.tsv.gz", "text.jsonl", "a.de"])
def test_repaired_pairs_are_kept_and_recorded(name: str, tmp_path: Path) -> None:
    texts = [(f"a dog {n}", text) for n, (text, _, _) in enumerate(MENDED)]
    texts += [("a b", "c «d»"), ("empty", "")]
    paths = [tmp_path / name]
    if name == "a.de":
        paths.insert(0, tmp_path / "a.en")
        columns = list(zip(*texts, strict=True))
    elif name.startswith("text.tsv"):
        columns = [tuple(map("\t".join, texts))]
    else:
        columns = [tuple(json.dumps({"x": x, "y": y, "id": 1}) for x, y in texts)]
    for path, lines in zip(paths, columns, strict=True):
        data = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    splits = {"train": Split(Corpus(tuple(paths), "x", "y"))}
    wanted = frozenset({"control", "mojibake", "empty"})
    done = cleaned(splits, tmp_path / "out", wanted, repair=True)
    assert (done["train"].rejected, done["train"].repaired) == (1, len(MENDED))
    assert rejected(tmp_path / "out")[len(texts)]["source"] == "empty"
    assert done["train"].repairs["invisible"] == 2
    kept = Corpus(tuple(tmp_path / "out" / path.name for path in paths), "x", "y")
    assert [target for _, target in kept] == [text for _, _, text in MENDED] + ["c «d»"]
    rows = list(map(json.loads, read_lines(tmp_path / "out/train.repaired.jsonl")))
    assert [(row["line"], row["repairs"], row["target"]) for row in rows] == [
        (line, repairs, text) for line, (text, repairs, _) in enumerate(MENDED, start=1)
    ]
    assert rows[1]["after"] == {"source": "a dog 1", "target": "der schöne Hund"}
    # Without, every kept line is as it was, and what could be repaired is counted.
    done = cleaned(splits, tmp_path / "same", frozenset({"empty"}))
    assert done["train"].repaired == len(MENDED)
    assert done["train"].files == (*(path.name for path in paths), "train.rejected.jsonl")
    for path, lines in zip(paths, columns, strict=True):
        assert tuple(read_lines(tmp_path / "same" / path.name)) == lines[:-1]
    assert not (tmp_path / "same/train.repaired.jsonl").exists()


def test_only_the_repaired_texts_of_a_line_change(tmp_path: Path) -> None:
    row = '{"meta": "\\ud800", "x": %s, "n": 1.5, "k": {"y": "a\\u200bb"}, "y": %s}'
    given = row % ('"a dog"', '"ein\\u200b Hund {}"')
    (tmp_path / "text.jsonl").write_text(f"{given}\n", encoding="utf-8")
    splits = {"train": Split(Corpus((tmp_path / "text.jsonl",), "x", "y"))}
    cleaned(splits, tmp_path / "out", frozenset({"empty"}), repair=True)
    (line,) = read_lines(tmp_path / "out/text.jsonl")
    assert line == row % ('"a dog"', '"ein Hund {}"')
    # Ends of lines become line feeds, and a byte order mark is dropped.
    (tmp_path / "crlf.tsv").write_bytes(b"\xef\xbb\xbfa\tb\r\nc\t\r\nd\te\r\n")
    splits = {"train": Split(Corpus((tmp_path / "crlf.tsv",), "x", "y"))}
    cleaned(splits, tmp_path / "crlf", frozenset({"empty"}))
    assert (tmp_path / "crlf/crlf.tsv").read_bytes() == b"a\tb\nd\te\n"
    # Features stay behind their tab, which is no control character.
    (tmp_path / "features.tsv").write_text("a\tV;PST\tb\nc  d\tV\te\n")
    splits = {"train": Split(Corpus((tmp_path / "features.tsv",), "x", "y", features=";"))}
    cleaned(splits, tmp_path / "features", frozenset({"control"}), repair=True)
    assert (tmp_path / "features/features.tsv").read_text() == "a\tV;PST\tb\nc d\tV\te\n"
    # A pair is checked after its repair.
    texts = {"train": [("a dog", "ein\u200b Hund"), ("a dog", "ein Hund"), ("a cat", "\u200b")]}
    splits = written(texts, tmp_path / "again" / "in")
    wanted = frozenset({"empty", "duplicate"})
    assert cleaned(splits, tmp_path / "again" / "out", wanted, repair=True)["train"].kept == 1


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("tasks_train.txt", "scan", "IN: jump%s twice OUT: I_JUMP I_JUMP"),
        ("tur.trn", "tsv", "y%sürü\tV;PST\tyürüdü"),
        # Half of a surrogate pair can only be escaped, with all else of its line.
        ("text.jsonl", None, r'{"x": "%sa", "y": ["\u00e4"], "k": "\ud83d \u00fc"}'),
        ("text.jsonl", None, '{"id": 1, "translation": {"x": "%sa", "y": "b"}}'),
    ],
)
def test_a_repaired_line_keeps_its_form(
    tmp_path: Path, name: str, kind: str | None, line: str
) -> None:
    given = line.replace("\\u00fc", "ü") % "\u200b"
    (tmp_path / name).write_text(f"{given}\n", encoding="utf-8")
    features = ";" if kind == "tsv" else None
    corpus = Corpus((tmp_path / name,), "x", "y", format=kind, features=features)
    cleaned({"train": Split(corpus)}, tmp_path / "out", frozenset({"empty"}), repair=True)
    assert list(read_lines(tmp_path / "out" / name)) == [line % ""]


def test_word_alignment_stays_in_step(tmp_path: Path) -> None:
    texts = {"train": [("a b", "c d"), ("lost", "\ufffd"), ("e", "f g")]}
    (split,) = written(texts, tmp_path / "in").values()
    links = tmp_path / "in/train.links"
    links.write_text("0-0 1-1\n0-0\n0-1\n")
    with_links = {"train": Split(split.corpus, links=links)}
    cleaned(with_links, tmp_path / "out", frozenset({"replacement"}))
    assert (tmp_path / "out/train.links").read_text() == "0-0 1-1\n0-1\n"
    links.write_text("0-0 1-1\n0-0\n")
    with pytest.raises(InputError, match=r"2 lines of links for 3 sentence pairs"):
        cleaned(with_links, tmp_path / "other", frozenset({"replacement"}))
    # Whole or not at all.
    assert not (tmp_path / "other").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    # A repair that would move words of the links is not made.
    other = tmp_path / "repair"
    texts = {"train": [("a \u200b b", "c d"), ("a\u200b b", "c d"), ("a\u2003b", "c d")]}
    (split,) = written(texts, other / "in").values()
    (other / "in/links").write_text("0-0\n" * 3)
    with_links = {"train": Split(split.corpus, links=other / "in/links")}
    cleaned(with_links, other / "out", frozenset({"empty"}), repair=True)
    assert list(read_lines(other / "out/train.en")) == ["a \u200b b", "a b", "a\u2003b"]


def test_a_duplicate_repeats_a_kept_pair(tmp_path: Path) -> None:
    texts, where = planted_texts()
    train = texts["train"]
    # A pair within the stretch that is shifted, and again behind it.
    shifted = train[749]
    train[900] = train[901] = train[902] = shifted
    cleaned(
        written(texts, tmp_path / "in"), tmp_path / "out", frozenset({"misaligned", "duplicate"})
    )
    refused = rejected(tmp_path / "out")
    assert refused[750]["faults"] == ["misaligned"]
    assert 901 not in refused
    # Only the enabled checks count.
    assert refused[902]["faults"] == refused[903]["faults"] == ["duplicate"]
    assert where["duplicate"][1] in refused


def test_document_separators_are_kept(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("", ""), ("empty", ""), (" ", ""), ("", "c"), ("d", "e"), ("", "")]
    lines = ["\t".join(pair) for pair in pairs]
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    texts = given_texts(data_config(tmp_path, train=str(path), documents=3))
    done = cleaned(texts, tmp_path / "out", frozenset({"empty"}))["train"]
    assert (done.kept, done.rejected) == (2, 2)
    assert list(read_lines(tmp_path / "out" / path.name)) == [lines[n] for n in (0, 1, 3, 5, 6)]
    assert {line: row["faults"] for line, row in rejected(tmp_path / "out").items()} == {
        3: ["empty"],
        5: ["empty"],
    }


def test_no_pair_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("a\tb\n")
    splits = given_texts(data_config(tmp_path, validation_size=500, alignment="links"))
    assert list(splits) == ["train"]
    assert list(splits["train"]) == [("a", "b")]
    assert splits["train"].links == Path("links")
    for split in ("train", "test"):
        (tmp_path / f"tasks_{split}_simple.txt").write_text("IN: jump OUT: I_JUMP\n" * 3)
    scan = {"corpus": "scan", "lang": "simple", "root": str(tmp_path), "train": None}
    splits = given_texts(data_config(tmp_path, validation_size=1, **scan))
    assert {name: len(list(split)) for name, split in splits.items()} == {"train": 3, "test": 3}
    alone = {"train": None, "validation": str(tmp_path / "text.tsv")}
    for changes in ({"train": None}, alone, {"corpus": "pocket"}, {"root": "here"}):
        with pytest.raises(InputError, match="data"):
            given_texts(data_config(tmp_path, **changes))


def test_rows_of_parquet_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"en": ["a"], "de": ["b"]}), tmp_path / "a.parquet")
    split = Split(Corpus.of(tmp_path / "a.parquet", "en", "de"))
    with pytest.raises(InputError, match=r"a\.parquet: clean writes lines, not rows of Parquet"):
        cleaned({"train": split}, tmp_path / "out")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = tmp_path / "a/text", tmp_path / "b/text"
    for path in paths:
        path.parent.mkdir()
        path.write_text("word\n")
    with pytest.raises(InputError, match="text is the name of two files"):
        cleaned({"train": Split(Corpus(paths, "x", "y"))}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
