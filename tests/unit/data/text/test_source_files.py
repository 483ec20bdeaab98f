"""Pairs whose source is the path of a file."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.data.corpora import data_config, tokenizer_config
from transformer.common.errors import BadSource, InputError
from transformer.data.corpora.resolve import find_splits
from transformer.data.corpora.split import Split, naming_line
from transformer.data.datamodules.translation import TranslationData
from transformer.data.features.reference import Reference, opened
from transformer.data.streaming.shards import find_shards
from transformer.data.text.parallel import Corpus, at_speeds, beside, source_state
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig, completed
from transformer.settings.sources import VectorsConfig


def test_paths_are_seen_from_the_folder_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a.wav\tone\n/there/b.wav\ttwo\n\t\n")
    corpus = Corpus((tmp_path / "pairs.tsv",), "sound", "en", source_files=True)
    assert list(corpus) == [(f"{tmp_path}/a.wav", "one"), ("/there/b.wav", "two"), ("", "")]
    assert beside("s3://bucket/a.wav", "/folder") == "s3://bucket/a.wav"


def test_a_third_column_of_paths_is_no_feature(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a.wav\tone\tspeaker\n")
    corpus = Corpus((tmp_path / "pairs.tsv",), "sound", "en", source_files=True)
    [shard] = find_shards(str(tmp_path / "pairs.tsv"), ("sound", "en"), source_files=True)
    for pairs in (corpus, shard.pairs()):
        with pytest.raises(InputError, match=r":1: 2 tabs where PATH<TAB>TEXT .* the line$"):
            list(pairs)


def test_a_changed_file_changes_the_fingerprint_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a.wav\tone\n")
    corpus = Corpus((tmp_path / "pairs.tsv",), "sound", "en", source_files=True)
    prints = [corpus.fingerprint()]
    for content in (b"1", b"22"):
        (tmp_path / "a.wav").write_bytes(content)
        prints.append(corpus.fingerprint())
    assert len(set(prints)) == 3
    assert source_state(f"{tmp_path}/a.wav#t=1,2").startswith(f"{tmp_path}/a.wav#t=1,2 2 ")
    # A blank one is no folder.
    assert source_state("") == " \n"


def test_a_changed_file_behind_a_row_or_url_changes_the_fingerprint(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": b"known", "path": "no.wav"}, {"bytes": None, "path": "a.wav"}]
    table = pa.table({"sound": pa.array(rows, kind), "en": ["one", "two"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "row.tsv").write_text("rows.parquet#row=1\tone\n")
    (tmp_path / "url.tsv").write_text(f"file://{tmp_path}/a.wav\tone\n")
    files = [tmp_path / name for name in ("rows.parquet", "row.tsv", "url.tsv")]
    corpora = [replace(Corpus.of(file, "sound", "en"), source_files=True) for file in files]
    prints = []
    for content in (b"1", b"22"):
        (tmp_path / "a.wav").write_bytes(content)
        prints.append([corpus.fingerprint() for corpus in corpora])
    for before, after in zip(*prints, strict=True):
        assert before != after


def test_speeds_multiply_and_a_blank_source_stays_blank() -> None:
    pairs = [("a.wav#speed=0.5", "one"), ("", "")]
    spoken = [source for source, _ in at_speeds(pairs, [1.0, 1.5])]
    assert spoken == ["a.wav#speed=0.5", "a.wav#speed=0.75", ""]


def test_one_key_is_not_both_sides(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"de": "a.wav"}\n')
    corpus = Corpus((tmp_path / "pairs.jsonl",), "de", "de", source_files=True)
    with pytest.raises(InputError, match=r"data\.source and data\.target are both"):
        list(corpus)


def test_bytes_of_parquet_are_sources(tmp_path: Path) -> None:
    """Of the column that the source names, in a stream, too; a column of texts has paths."""
    file = tmp_path / "pairs.parquet"
    sounds = [b"first", b"second", b"third"]
    columns = {"noisy": [b"wrong"] * 3, "a clean one": sounds, "path": ["a.wav"] * 3}
    pq.write_table(pa.table({**columns, "en": ["one", "two", "three"]}), file, row_group_size=2)

    def pairs(column: str) -> list[tuple[str, str]]:
        corpus = replace(Corpus.of(file, column, "en"), source_files=True)
        [shard] = find_shards(str(file), (column, "en"), source_files=True)
        assert list(shard.pairs()) == list(corpus)
        return list(corpus)

    sources, targets = zip(*pairs("a clean one"), strict=True)
    assert targets == ("one", "two", "three")
    assert sources[1] == f"{file}#row=1&column=a%20clean%20one"
    assert pairs("path")[0] == (f"{tmp_path}/a.wav", "one")
    for source, sound in zip(sources, sounds, strict=True):
        with opened(Reference.parse(source)) as opened_source:
            assert opened_source.read() == sound
    with pytest.raises(InputError, match=r"pairs\.parquet:1: the column 'noisy' has b'wrong', not"):
        list(Corpus.of(file, "noisy", "en"))
    with pytest.raises(InputError, match=r"data\.source and data\.target are both"):
        pairs("en")


def test_rows_are_held_out(tmp_path: Path) -> None:
    """The same ones in another folder."""
    table = pa.table({"sound": [b"x"] * 20, "en": [str(number) for number in range(20)]})
    held_out = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        pq.write_table(table, folder / "pairs.parquet")
        config = DataConfig(
            corpus="files",
            source_kind="speech",
            source="sound",
            target="en",
            train=str(folder / "pairs.parquet"),
            validation_size=4,
            test_size=3,
        )
        splits = find_splits(config)
        assert {name: len(list(split)) for name, split in splits.items()} == {
            "train": 13,
            "validation": 4,
            "test": 3,
        }
        held_out.append([target for _, target in splits["validation"]])
    assert held_out[0] == held_out[1]


def test_bytes_of_parquet_have_one_fingerprint_in_any_folder(tmp_path: Path) -> None:
    table = pa.table({"sound": [b"first"], "en": ["one"]})
    prints = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "pairs.parquet"
        pq.write_table(table, file)
        prints.add(replace(Corpus.of(file, "sound", "en"), source_files=True).fingerprint())
    assert len(prints) == 1


def test_long_texts_and_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "pairs.parquet"
    pq.write_table(pa.table({"de": ["eins", "zwei" * 10], "en": ["one", "two"]}), file)
    corpus = replace(Corpus.of(file, "de", "en"), max_line=20)
    with pytest.raises(InputError, match=r"pairs\.parquet: pair 2: .*data\.max_line"):
        list(corpus)
    pq.write_table(pa.table([["eins"], ["one"], ["two"]], ["de", "en", "en"]), file)
    with pytest.raises(InputError, match=r"pairs\.parquet: two columns have one name"):
        list(Corpus.of(file, "de", "en"))


def prepared(
    folder: Path, train: str, validation: str = "good.npy\tone\n", **changes: object
) -> None:
    """Read all arrays of a training text, and those of a validation text, by default a good one."""
    np.save(folder / "good.npy", np.ones((4, 3)))
    (folder / "validation.tsv").write_text(validation)
    data = data_config(
        folder,
        train=str(folder / train),
        validation=str(folder / "validation.tsv"),
        validation_size=0,
        source_kind="vectors",
        vectors=VectorsConfig(channels=3),
        **changes,
    )
    tokenizer = tokenizer_config(algorithm="words", vocab_size=None, sampling=0.0)
    module = TranslationData(completed(RunConfig(data=data, tokenizer=tokenizer)))
    module.prepare_data()
    if data.streaming:
        module.setup("fit")
        next(iter(module.train_dataloader()))


def test_missing_files_are_named_by_line_and_counted(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("good.npy\tone\n" + "none.npy\ttwo\n" * 3 + ".\tthree\n")
    with pytest.raises(InputError) as error:
        prepared(tmp_path, "text.tsv")
    assert str(error.value) == (
        f"{tmp_path}/text.tsv:2: {tmp_path}/none.npy: no such file; correct the path "
        "(1 more of its files cannot be opened)"
    )
    text = "".join(f"none.npy#t={second},\tone\n" for second in range(5))
    (tmp_path / "text.tsv").write_text(text)
    with pytest.raises(InputError, match=r"text\.tsv:1: .*/none\.npy: no such file; [^(]*$"):
        prepared(tmp_path, "text.tsv")
    (tmp_path / "text.tsv").write_text(text + "good.npy#speed=3\tone\n")
    with pytest.raises(InputError, match=r"text\.tsv:6: .*/good\.npy#speed=3: speed=3 is not"):
        prepared(tmp_path, "text.tsv")
    (tmp_path / "text.tsv").write_text("path\tsentence\ngood.npy\tone\n")
    with pytest.raises(InputError, match=r"text\.tsv:1: .*/path: no such file; .* no header$"):
        prepared(tmp_path, "text.tsv")
    prepared(tmp_path, "validation.tsv")


STREAMING = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])


@STREAMING
def test_missing_files_of_the_validation_text_are_named(tmp_path: Path, streaming: bool) -> None:
    (tmp_path / "text.tsv").write_text("good.npy\tone\n")
    validation = "good.npy\tone\nnone.npy\tone\nno.npy\ttwo\n"
    missing = r"/validation\.tsv:2: .*/none\.npy: no such file; .*\(1 more of its files"
    with pytest.raises(InputError, match=missing):
        prepared(tmp_path, "text.tsv", validation, streaming=streaming)


@STREAMING
def test_a_bad_file_is_named_by_its_line(tmp_path: Path, streaming: bool) -> None:
    (tmp_path / "bad.npy").write_bytes(b"bad")
    rows = [{"x": "good.npy", "y": ["one", "two"]}, {"x": "bad.npy", "y": "three"}]
    if streaming:
        rows[0]["y"] = "one"
    (tmp_path / "text.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(InputError, match=r"/text\.jsonl:2: .*/bad\.npy: not an array"):
        prepared(tmp_path, "text.jsonl", streaming=streaming)


def test_a_file_that_is_read_at_another_speed_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "text.tsv").write_text("a.wav#t=0,1\tone\na.wav#t=1,2\ttwo\n")
    split = Split(Corpus((tmp_path / "text.tsv",), "x", "y", source_files=True))
    with pytest.raises(InputError, match=r"text\.tsv:2: damaged$"), naming_line(split):
        raise BadSource("damaged", f"{tmp_path}/a.wav#t=1,2&speed=0.9")


def test_a_file_without_text_is_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "text.tsv").write_text("good.npy\tone\ngood.npy\t\n")
    with caplog.at_level("INFO"):
        prepared(tmp_path, "text.tsv")
    assert "1 of 2 pairs kept; left out (50.0%): 1 with an empty side" in caplog.text
