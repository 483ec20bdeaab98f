"""Pairs whose source is the path of a file."""

from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.data.text.parallel import Corpus, at_speeds, beside, source_state


def test_paths_are_seen_from_the_folder_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a.wav\tone\n/there/b.wav\ttwo\n\t\n")
    corpus = Corpus((tmp_path / "pairs.tsv",), "sound", "en", source_files=True)
    assert list(corpus) == [(f"{tmp_path}/a.wav", "one"), ("/there/b.wav", "two"), ("", "")]
    assert beside("s3://bucket/a.wav", "/folder") == "s3://bucket/a.wav"


def test_a_changed_file_changes_the_fingerprint_of_its_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a.wav\tone\n")
    corpus = Corpus((tmp_path / "pairs.tsv",), "sound", "en", source_files=True)
    prints = [corpus.fingerprint()]
    for content in (b"1", b"22"):
        (tmp_path / "a.wav").write_bytes(content)
        prints.append(corpus.fingerprint())
    assert len(set(prints)) == 3
    assert source_state(f"{tmp_path}/a.wav#t=1,2").startswith(f"{tmp_path}/a.wav#t=1,2 2 ")


def test_speeds_multiply_and_a_blank_source_stays_blank() -> None:
    pairs = [("a.wav#speed=0.5", "one"), ("", "")]
    spoken = [source for source, _ in at_speeds(pairs, [1.0, 1.5])]
    assert spoken == ["a.wav#speed=0.5", "a.wav#speed=0.75", ""]


def test_one_key_is_not_both_sides(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"de": "a.wav"}\n')
    corpus = Corpus((tmp_path / "pairs.jsonl",), "de", "de", source_files=True)
    with pytest.raises(InputError, match=r"data\.source and data\.target are both"):
        list(corpus)
