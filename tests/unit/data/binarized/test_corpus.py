"""Preparation in several processes gives the same files, and goes on where it was killed."""

import multiprocessing
import resource
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.data.corpora import SENTENCES, data_module, tokenizer_config, write_corpus
from tests.helpers.runs.processes import FORKS, exit_code
from transformer.common.errors import InputError
from transformer.data.binarized import corpus as corpus_module
from transformer.data.binarized.corpus import EncodedCorpus, ShardWriter, count_pairs, encode_corpus
from transformer.data.text.parallel import Corpus
from transformer.data.text.training_filters import Filters
from transformer.data.tokenization.tokenizer import Tokenizer

FILTERS = Filters(max_length=20, max_ratio=None, deduplicate=True)


Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    """Long and repeated ones among them."""
    three = [f"{a} {b} {c}" for a in SENTENCES for b in SENTENCES for c in SENTENCES[:4]]
    return [(text, text[::-1]) for text in [*three, *three[:40]]]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_BLOCK", 50)
    monkeypatch.setattr(corpus_module, "_INTERVAL", 0.0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    corpus = Corpus.of(write_corpus(tmp_path_factory.mktemp("corpus")), "x", "y")
    return Tokenizer.train(tokenizer_config(), lambda: corpus)


def encode(
    folder: Path, pairs: Pairs, tokenizer: Tokenizer, workers: int = 0, **options: Any
) -> Path:
    """Encode pairs to a folder, without texts; ``filters`` are none."""
    arguments = {"filters": None, "texts": False} | options
    encode_corpus("train", lambda: pairs, tokenizer, folder=folder, workers=workers, **arguments)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_any_number_of_processes_gives_the_same_bytes(
    pairs: Pairs, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for workers in (0, 1, 3):
        encode(tmp_path / str(workers), pairs, tokenizer, workers, filters=FILTERS, texts=True)
    first = contents(tmp_path / "0")
    assert list(first) == [f"{number:05d}.arrow" for number in range(8)]
    assert first == contents(tmp_path / "1") == contents(tmp_path / "3")
    # Every pair that is kept stands in its place: the text order, across the shards.
    ids = tokenizer.encode_pairs(pairs)
    short = [p for p, sides in zip(pairs, ids, strict=True) if max(map(len, sides)) <= 20]
    kept = list(dict.fromkeys(short))
    corpus = EncodedCorpus(tmp_path / "0")
    assert 100 < len(kept) < len(short) < len(pairs)
    assert corpus.texts("source", np.arange(len(corpus))) == [source for source, _ in kept]
    read, dropped = count_pairs((tmp_path / "0").glob("*.arrow"))
    assert (read, read - dropped.total()) == (len(pairs), len(kept))


def prepare(folder: Path, slow: bool) -> None:
    """In a fork: in small blocks, of which each is written slowly where that is wanted."""
    at_once = ShardWriter.write

    # A process of a pool finds it by its name.
    def write(writer: ShardWriter, block: Any) -> None:
        time.sleep(0.1)
        at_once(writer, block)

    multiprocessing.set_start_method("fork", force=True)
    corpus_module._BLOCK = 8
    if slow:
        ShardWriter.write = write  # type: ignore[method-assign]
    data_module(folder, prepare_workers=2).prepare_data()


def prepared(folder: Path, slow: bool) -> BaseProcess:
    process = FORKS.Process(target=prepare, args=(folder, slow), daemon=False)
    process.start()
    return process


@pytest.mark.thorough
def test_a_killed_preparation_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "killed").mkdir()
    (tmp_path / "whole").mkdir()
    for folder in tmp_path.iterdir():
        write_corpus(folder)
    killed = prepared(tmp_path / "killed", slow=True)
    cache = tmp_path / "killed" / "cache"
    deadline = time.monotonic() + 240
    while len(list(cache.glob("train-*.parts/*.arrow"))) < 3:
        assert time.monotonic() < deadline and killed.is_alive()
        time.sleep(0.01)
    killed.kill()
    killed.join()
    assert not [path for path in cache.glob("train-*") if path.suffix != ".parts"]
    done = {path.name: path.stat().st_ino for path in cache.glob("train-*/*.arrow")}
    assert 3 <= len(done) < 9
    # It ends only if the processes of the killed one are gone, which hold its lock.
    assert exit_code(prepared(tmp_path / "killed", slow=False)) == 0
    monkeypatch.setattr(corpus_module, "_BLOCK", 8)
    data_module(tmp_path / "whole").prepare_data()
    (finished,), (whole,) = (
        list((tmp_path / f / "cache").glob("train-*")) for f in ("killed", "whole")
    )
    assert contents(finished) == contents(whole)
    assert len(contents(whole)) == 9
    kept = {path.name: path.stat().st_ino for path in finished.iterdir()}
    assert done.items() <= kept.items()  # not written a second time


def prepare_on_a_full_disk(folder: Path) -> None:
    """In a fork: the error is written to a file."""
    corpus_module._BLOCK = 40
    module = data_module(folder)
    assert module.tokenizer
    output = (folder / "error.txt").open("w")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        module.prepare_data()
    except InputError as error:
        print(error, file=output, flush=True)


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    process = FORKS.Process(target=prepare_on_a_full_disk, args=(tmp_path,))
    process.start()
    assert exit_code(process) == 0
    (message,) = (tmp_path / "error.txt").read_text().splitlines()
    assert "00000.arrow: cannot be written (" in message
    assert "File too large); free some space, or write elsewhere" in message
    assert not list((tmp_path / "cache").glob("train-*/*"))
    module = data_module(tmp_path)
    module.prepare_data()
    assert len(list((tmp_path / "cache").glob("train-*/*"))) == 2


def test_a_damaged_shard_is_named(pairs: Pairs, tokenizer: Tokenizer, tmp_path: Path) -> None:
    shard = encode(tmp_path / "a", pairs, tokenizer) / "00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"00000\.arrow: damaged .* delete .*/a, it will be made"):
        EncodedCorpus(tmp_path / "a")
