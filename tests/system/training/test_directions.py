"""One model, two directions, in documents: the same sources, and only a tag says what to do."""

import json
from pathlib import Path

import pytest

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.runs import SMALL, composed, verb
from transformer.__main__ import main
from transformer.cli.config import command_settings, compose_config
from transformer.commands.line_files import LineAssignment, PartFiles
from transformer.commands.translate import job, load_line_translator
from transformer.decoding.document_translator import DocumentTranslator, in_documents
from transformer.decoding.translator import Translator
from transformer.runs.train import train

pytestmark = pytest.mark.thorough

SIZES = {"train": 2000, "validation": 40, "test": 40}


def in_documents_of(path: Path, size: int) -> None:
    """Part a file into documents by blank lines."""
    lines = path.read_text().splitlines()
    parts = ["\n".join(lines[start : start + size]) for start in range(0, len(lines), size)]
    path.write_text("\n\n".join(parts) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    folder = tmp_path_factory.mktemp("directions")
    corpora = []
    for code, turn in (("low", list), ("up", lambda words: [word.upper() for word in words])):
        (folder / code).mkdir()
        files = []
        for seed, (split, count) in enumerate(SIZES.items()):
            paths = write_parallel(folder / code, split, count, seed, turn)
            for path in paths:
                in_documents_of(Path(path), 5)
            files.append(f"{split}:[{','.join(paths)}]")
        corpora.append(f"{code}:{{target:{code},{','.join(files)}}}")
    overrides = [
        *("data=files", "data.source=src", "data.target_tag=true", "data.documents=2"),
        f"data.corpora={{{','.join(corpora)}}}",
        *(option for option in SMALL if "vocab_size" not in option),
        "tokenizer.vocab_size=400",
        "model.positions=rotary",
        "trainer.max_steps=300",
        "trainer.val_check_interval=300",
        "trainer.log_every_n_steps=100",
        "decoding=greedy",
    ]
    metrics = train(composed(overrides, folder / "cache"), folder / "run")
    return folder, metrics


def test_it_learns_both_and_a_line_asks_for_one(trained: tuple[Path, dict[str, float]]) -> None:
    folder, metrics = trained
    for name in ("val/bleu", "val/bleu_low", "val/bleu_up", "test_low/bleu", "test_up/bleu"):
        # In the wrong letters nothing would be right. Five seeds, float32 and bfloat16: 9.3 to 50.
        assert metrics[name] > 4, name
    lines = [{"text": "alpha beta gamma", "to": to} for to in ("low", "up")]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    arguments = ("checkpoint=run", "input_format=json")
    code, out, _ = verb("translate", *arguments, home=folder, stdin=stdin.encode())
    low, up = out.splitlines()
    assert code == 0 and low.islower() and up.isupper()


def test_documents_are_translated_line_by_line(trained: tuple[Path, dict[str, float]]) -> None:
    folder, _ = trained
    lines = (folder / "low" / "test.src").read_text().splitlines()
    stdin = "\n".join([*lines, "", "", "omega " * 30, "zeta"]).encode()
    for asked in ([], ["documents=false"]):
        arguments = ["checkpoint=run", "to=low", *asked]
        code, out, _ = verb("translate", *arguments, home=folder, stdin=stdin)
        found = out.removesuffix("\n").split("\n")
        assert code == 0 and len(found) == len(lines) + 4
        assert [not line for line in found[: len(lines)]] == [not line for line in lines]
        assert not any(line.isupper() for line in found)


def test_most_windows_come_back_in_as_many_sentences(
    trained: tuple[Path, dict[str, float]],
) -> None:
    folder, _ = trained
    translator = in_documents(Translator.load(folder / "run"))
    assert isinstance(translator, DocumentTranslator)
    texts = (folder / "low" / "test.src").read_text().splitlines()
    tagged = translator.tokenizer.tagged(translator.tokenizer.source_tags._replace(target="low"))
    translator = DocumentTranslator(
        Translator(translator.translator.model, tagged, translator.search, 4096)
    )
    windows = [window for window in translator.windows(texts) if len(window) == 2]
    joined = ["\n".join(texts[index] for index in window) for window in windows]
    found = translator.translator.translate(joined)
    separator = translator.tags.spelled[0]
    whole = sum(translation.tokens.count(separator) == 1 for translation in found)
    assert len(windows) >= 16 and whole > 0.8 * len(windows)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "set to=low"),
        (["to=de"], "to=de"),
        (["to=low", "tag=web"], "tag=web"),
        (["to=low", "alignment=true"], "a document has no alignment"),
    ],
)
def test_a_wrong_tag_is_one_line(
    trained: tuple[Path, dict[str, float]],
    arguments: list[str],
    named: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder, _ = trained
    given = [f"checkpoint={folder}/run", f"input={folder}/low/test.src", *arguments]
    assert main(["translate", *given]) == 2
    out, err = capfd.readouterr()
    assert out == "" and named in err and err.count("\n") == 1


def test_a_call_that_was_killed_goes_on_with_the_same_windows(
    trained: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    folder, _ = trained
    given = [f"checkpoint={folder}/run", f"input={folder}/low/test.src", "to=up"]
    whole = tmp_path / "whole"
    assert main(["translate", *given, f"output={whole}"]) == 0
    expected = whole.read_text()
    parts = _parts([*given, f"output={whole}"], folder / "low" / "test.src", whole)
    # Killed in the middle of the third window.
    parts.path(0).write_text("".join(expected.splitlines(keepends=True)[:5]))
    whole.unlink()
    assert main(["translate", *given, f"output={whole}"]) == 0
    assert whole.read_text() == expected


def _parts(arguments: list[str], source: Path, output: Path) -> PartFiles:
    """What a killed call leaves beside its output."""
    config = command_settings("translate", compose_config("translate", arguments), arguments)
    model = load_line_translator(config)
    named = job(model.config, model.translator, source)
    return PartFiles(output, LineAssignment.from_environment(), named)
