"""``launch=ray`` on a local cluster of two actors, of which one is killed."""

import gzip
import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.data.text import WORDS
from tests.helpers.runs.tuning_runs import write_run
from transformer.commands import ray_data
from transformer.commands.ray_data import score_files, translate_files
from transformer.commands.score import score_targets
from transformer.commands.translate import translate
from transformer.common.errors import InputError
from transformer.settings.evaluation import ScoreConfig
from transformer.settings.translator import TranslateConfig

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.thorough

# Samples of a text depend on the text alone, and tell it from others.
SEARCH = {"algorithm": "sampling", "beam_size": 1, "top_k": 5}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two processors, which speak to nobody. The path of a socket is short: not tmp_path."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="r") as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # its token would be written to the home folder
        memory = 80 * 2**20
        options = {"include_dashboard": False, "object_store_memory": memory, "_temp_dir": folder}
        ray.init(num_cpus=2, **options)
        try:
            yield
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_run(tmp_path_factory.mktemp("run")))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_data, "BLOCK", 16)


def phrases(count: int, seed: int = 5) -> list[str]:
    """Lines with signs that end a line elsewhere, some of them blank, also the last one."""
    random_ = random.Random(seed)
    lines = [" ".join(random_.choices(WORDS, k=random_.randint(2, 7))) for _ in range(count)]
    lines[3] = "alpha\x85beta\u2028gamma\x0bdelta\rbeta"
    lines[4] = lines[-1] = ""
    return lines


def write_lines(file: Path, lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of all blocks of a file, in order."""
    found: list[dict[str, Any]] = []
    for number, block in enumerate(sorted(folder.glob(f"{name}.[0-9]*"))):
        assert block.name.startswith(f"{name}.{number:06}.")
        # Parquet in, Parquet out.
        assert (block.suffix == ".parquet") is name.endswith(".parquet")
        if block.suffix == ".parquet":
            found += pq.read_table(block).to_pylist()
        else:
            found += [json.loads(line) for line in block.read_bytes().decode().split("\n")[:-1]]
    return found


def test_every_line_is_translated_once_and_as_without_ray(run: str, tmp_path: Path) -> None:
    sources = phrases(40)
    targets = phrases(40, seed=6)
    lines = [f"{source}\t{target}" for source, target in zip(sources, targets, strict=True)]
    table = pa.table({"n": [1] * 40, "en": sources, "de": targets})
    folder = tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "a.txt", sources)
    write_lines(folder / "c.tsv", lines)
    write_lines(folder / "d.jsonl.gz", [json.dumps(row) for row in table.to_pylist()])
    pq.write_table(table, folder / "e.parquet", row_group_size=7)
    output = tmp_path / "out"
    config = TranslateConfig(run, input=folder / "*", output=output, launch="ray", decoding=SEARCH)
    # Four files, each of blocks of 16, 16 and 8 lines.
    assert translate_files(config) == (12, 160, 0)
    expected = [translation.to_line() for translation in translate(config, sources)]
    assert len(set(expected)) > 30
    for name in ("a.txt", "c.tsv", "d.jsonl.gz", "e.parquet"):
        pairs = [(row["en"], row["de"]) for row in rows(output, name)]
        assert pairs == list(zip(sources, expected, strict=True))

    # The same call computes what is missing, and nothing else.
    before = {path: path.stat().st_mtime_ns for path in output.glob("*.0*")}
    missing = output / "c.tsv.000001.jsonl"
    content = missing.read_bytes()
    missing.unlink()
    assert translate_files(config) == (1, 16, 11)
    assert missing.read_bytes() == content
    after = {path: path.stat().st_mtime_ns for path in output.glob("*.0*")}
    assert {path for path in after if after[path] != before[path]} == {missing}

    # The pairs are scored as without Ray.
    write_lines(tmp_path / "target", targets)
    plain = ScoreConfig(run, source=folder / "a.txt", target=tmp_path / "target")
    scores = [scored.log_probability for scored in score_targets(plain)]
    files = ScoreConfig(run, source=folder / "[c-e].*", output=tmp_path / "s", launch="ray")
    assert score_files(files) == (9, 120, 0)
    for name in ("c.tsv", "d.jsonl.gz", "e.parquet"):
        scored_rows = [row["log_probability"] for row in rows(tmp_path / "s", name)]
        assert scored_rows == pytest.approx(scores, abs=1e-4)

    with pytest.raises(InputError, match="made with another decoding "):
        translate_files(replace(config, decoding={"seed": 2, **SEARCH}))
    with pytest.raises(InputError, match=r"000\.jsonl is output=, or inside of it"):
        translate_files(replace(config, input=output / "a*"))


def actors() -> list[int]:
    """Process ids of the actors of this process's cluster."""
    parents, found = {}, []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
            title = (status.parent / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if title.startswith(b"ray::MapWorker"):
            found.append(int(status.parent.name))
    return [one for one in found if parents.get(parents.get(one, 0)) == os.getpid()]


def test_a_killed_actor_loses_nothing(run: str, tmp_path: Path) -> None:
    sources = phrases(1600)
    write_lines(tmp_path / "text", sources)
    output = tmp_path / "out"
    killed: list[int] = []
    left: list[int] = []

    def wait(ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not ready() and time.monotonic() < deadline:
            time.sleep(0.005)

    def kill() -> None:
        wait(lambda: len(list(output.glob("*.0*"))) >= 3)
        first = actors()[0]
        # While it stands still, Ray starts the second one, however slow the machine is.
        os.kill(first, signal.SIGSTOP)
        wait(lambda: len(actors()) == 2)
        killed.extend(actors())
        left.append(100 - len(list(output.glob("*.0*"))))
        os.kill(first, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    config = TranslateConfig(
        run, input=tmp_path / "text", output=output, launch="ray", decoding=SEARCH
    )
    assert translate_files(config) == (100, 1600, 0)
    killer.join()
    assert len(killed) == 2
    assert 0 < left[0] < 98
    expected = [one.to_line() for one in translate(config, sources)]
    found = [(row["en"], row["de"]) for row in rows(output, "text")]
    assert found == list(zip(sources, expected, strict=True))
    assert not list(output.glob("*.part"))
