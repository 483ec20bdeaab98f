"""A wrong call of a verb ends in one line and exit code 2, and writes nothing."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.runs import verb

SAMPLED = ("input=text", "output=out", "decoding=sampling", "decoding.top_k=5")
COMPARED = ("run", "run/checkpoints/best.ckpt")
PLAIN = ("text=alpha",)

# Of the verb, without its checkpoint: checkpoint=run, unless the arguments name another.
CALLS: dict[str, list[tuple[tuple[str, ...], str]]] = {
    "translate": [
        (("checkpoint=train.src",), "cannot be read as a checkpoint"),
        (("attention=true",), "attention=true: plain text has no place for it; add format=json"),
        (("launch=ray",), "launch=ray reads and writes files; set input= and output="),
        (("join=true",), "join=true is for launch=ray; leave it out"),
        (("decoding=mbr", "decoding.utility=comet"), "decoding.utility=comet cannot be imported"),
        (("input_format=json", "decoding=greedy"), "set decoding=beam"),
        ((*SAMPLED, "input=folder"), "folder: cannot be read (Is a directory); give a file"),
        ((*SAMPLED, "output=folder"), "output=folder is a folder, or in none; give a file"),
        ((*SAMPLED, "output=link"), "output=link is an input too"),
        ((*SAMPLED, "input=latin"), "latin:11: byte 2 of the line is not UTF-8"),
        ((*SAMPLED, "input=requests", "input_format=json"), "requests:10: not JSON"),
        ((*SAMPLED, "input=musts", "input_format=json"), "cannot look for phrases that must occur"),
    ],
    "score": [(("source=text", "target=gone"), "gone: no such file")],
    "evaluate": [
        (("alignment=true",), "the gold links of this text are not known; give alignment=FILE"),
        (("alignment=test.src",), "' is not a link"),
        (("alignment=blank",), "blank has 1 lines of links for 40 sentence pairs"),
        (("terms=text",), "text has 1 lines for 40 pairs, 1 of them"),
    ],
    "compare": [
        ((*COMPARED, "split=train"), "there is no split=train; choose validation or test"),
        ((*COMPARED, "output=text/o"), "text/o: Not a directory"),
        ((*COMPARED, "text"), "text has 1 lines for"),
        ((*COMPARED, "training=gone"), "gone: no such file"),
        (("text",), "compare takes two systems or more"),
        (("text", "blank"), "give source=FILE and reference=FILE"),
        (("text", "blank", "source=text"), "source=FILE and reference=FILE go together"),
    ],
    "stress": [
        (("disturbances=[uper]",), "disturbances has 'uper', which is no"),
        (("output=text",), "text: File exists"),
    ],
    "heads": [
        (("prune=[0.5,1.5]",), "prune=[0.5, 1.5] must be fractions"),
    ],
    "attention": [((*PLAIN, "sentences=0", "output=text"), "text: File exists")],
    "export": [
        (("output=none", "format=gguf"), "format=gguf is unknown; choose argos or ctranslate2"),
        (("output=text/none",), "text: File exists"),
        (("output=none", "max_bleu_loss=-1"), "more than max_bleu_loss=-1; nothing was written"),
    ],
}


@pytest.fixture(scope="module")
def work(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run and files of many kinds."""
    folder = tmp_path_factory.mktemp("work")
    for name in ("run", "train.src", "test.src"):
        (folder / name).symlink_to(home / name)
    (folder / "folder").mkdir()
    (folder / "text").write_text("alpha\n")
    (folder / "blank").write_text("\n")
    (folder / "link").symlink_to("text")
    (folder / "latin").write_bytes(b"alpha\n" * 10 + b"b\xe4ta\n")
    (folder / "requests").write_text('{"text": "alpha"}\n' * 9 + "alpha\n")
    (folder / "musts").write_text('{"text": "alpha", "must": ["beta"]}\n')
    return folder


def written(folder: Path) -> dict[Path, int]:
    """Every file below the folder and below the run, and when it was written."""
    files = [*folder.rglob("*"), *(folder / "run" / "").rglob("*")]
    return {path: path.lstat().st_mtime_ns for path in files}


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [(name, *call) for name, calls in CALLS.items() for call in calls],
)
def test_a_wrong_call(work: Path, name: str, arguments: tuple[str, ...], says: str) -> None:
    named = name == "compare" or any(one.startswith("checkpoint=") for one in arguments)
    before = written(work)
    # Where standard input is read, its first line asks for what greedy search cannot do.
    request = json.dumps({"text": "alpha", "must": ["x"]}).encode()
    given = arguments if named else ("checkpoint=run", *arguments)
    code, stdout, stderr = verb(name, *given, home=work, stdin=request)
    assert (code, stdout) == (2, "")
    *earlier, last = stderr.strip().split("\n")
    assert last.startswith("error: ") and says in last
    # An export is verified before it is refused; heads are shown before the page is written.
    assert not earlier or name in ("export", "attention"), stderr
    assert "Traceback" not in stderr
    assert written(work) == before
