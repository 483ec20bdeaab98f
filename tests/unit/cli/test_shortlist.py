"""``shortlist`` of a run, and what then translates with it."""

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.helpers.decoding.steps import search_config
from tests.helpers.decoding.translators import PAIRS, tiny_tokenizer
from tests.helpers.model.models import portable, tiny_payload, tiny_transformer
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import PORTABLE, write_payload
from transformer.decoding.search.shortlist import Shortlist
from transformer.decoding.translator import Translator
from transformer.interchange import export_formats
from transformer.settings.data import DataConfig


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run on PAIRS."""
    monkeypatch.chdir(tmp_path)
    for side, language in enumerate(("en", "de")):
        Path(f"t.{language}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), "utf-8")
    Path("t.links").write_text("0-0 1-1 2-2\n" * len(PAIRS))
    write_run("run")
    return tmp_path


def write_run(name: str, folder: str = "") -> None:
    """Write a run whose text lies in the working folder, or in a folder named by its path."""
    paths = (f"{folder}t.en", f"{folder}t.de")
    data = DataConfig(
        corpus="files", source="en", target="de", train=paths, validation=paths, test_size=0
    )
    tokenizer = tiny_tokenizer()
    size = tokenizer.target_vocab_size
    model = tiny_transformer(source_vocab_size=size, target_vocab_size=size)
    weights = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    search = asdict(search_config(algorithm="greedy", beam_size=1))
    run = {"task": "translation", "decoding": search, "data": asdict(data)}
    Path(name, "checkpoints").mkdir(parents=True)
    part = portable(model.config, tokenizer.to_state(), run)
    payload = {"state_dict": weights, PORTABLE: part}
    write_payload(payload, Path(name, "checkpoints/best.ckpt"))


def shown(capsys: pytest.CaptureFixture[str], *call: str, code: int = 0) -> tuple[str, str]:
    assert main([*call]) == code
    return capsys.readouterr()


def test_the_text_of_the_run_makes_one_that_translate_uses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["translate", "checkpoint=run", "input=t.en", "decoding.shortlist=auto"]
    _, error = shown(capsys, *call, "output=o", code=2)
    assert "shortlist.npz does not exist" in error and error.count("\n") == 1
    out, error = shown(capsys, "shortlist", "checkpoint=run", "best=3", "frequent=4")
    assert out == f"{folder.resolve() / 'run' / 'shortlist.npz'}\n"
    assert error.startswith("4 pairs, by Model 1: ") and " of 310 tokens" in error
    shown(capsys, *call, "output=short")
    shown(capsys, *call[:-1], "output=whole")
    assert Path("short").read_text() != Path("whole").read_text()
    search = search_config(
        algorithm="greedy",
        beam_size=1,
        shortlist="auto",
        max_length_ratio=0.0,
        max_length_offset=8,
    )
    translations = Translator.load("run", search=search).translate([text for text, _ in PAIRS])
    lines = [translation.to_line() for translation in translations]
    assert Path("short").read_text("utf-8").splitlines() == lines


def test_files_and_links_of_the_user(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["shortlist", "checkpoint=run", "best=2", "frequent=1", "sentences=2"]
    _, error = shown(
        capsys, *call, "source=t.en", "target=t.de", "alignment=t.links", "output=linked.npz"
    )
    assert error.startswith("2 pairs, by word links: ")
    _, error = shown(capsys, *call, "source=t.en", "target=t.de", "output=learned.npz")
    assert error.startswith("2 pairs, by Model 1: ")
    tokenizer = tiny_tokenizer()
    linked = Shortlist.load(Path("linked.npz"), tokenizer)
    [source] = tokenizer.encode_source(["child"])
    spelled = "".join(tokenizer.subwords(linked.tokens([source[-1:]]).tolist()))
    # Of four pairs the first and the third are counted.
    assert "kind" not in spelled
    [source] = tokenizer.encode_source(["dog"])
    spelled = "".join(tokenizer.subwords(linked.tokens([source]).tolist()))
    assert "hund" in spelled


def test_what_is_wrong_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty").write_text("\n\n")
    Path("none").touch()
    payload = tiny_payload()
    payload[PORTABLE]["config"]["task"] = "tagging"
    write_payload(payload, Path("tagger.ckpt"))
    write_run("elsewhere", folder=f"{folder}/")
    monkeypatch.delenv("TRANSFORMER_TRUST", raising=False)
    before = sorted(folder.rglob("*"))
    for arguments, message in (
        (["source=t.en"], "source= and target= go together"),
        (["best=0"], "best=0 must be at least 1"),
        (["source=empty", "target=empty"], "no pair has 1 to 256 tokens on each side"),
        (["source=t.en", "target=t.de", "alignment=none"], "0 lines of links for 4 sentence pairs"),
        (["checkpoint=tagger.ckpt"], "was trained for task=tagging"),
        (["checkpoint=elsewhere"], "add trust=true"),
    ):
        _, error = shown(capsys, "shortlist", "checkpoint=run", *arguments, code=2)
        assert message in error and error.count("\n") == 1, error
    assert sorted(folder.rglob("*")) == before


def test_an_export_has_the_shortlist_of_its_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2")
    shown(capsys, "shortlist", "checkpoint=run", "best=3", "frequent=4")
    export = ["export", "checkpoint=run", "max_bleu_loss=100", "output=export"]
    shown(capsys, *export)
    lines = Path("export/vmap.txt").read_text("utf-8").splitlines()
    assert lines[0].startswith("\t<pad> <unk> <s> </s>")
    assert len(lines) == 1 + tiny_tokenizer().source_vocab_size
    call = ["translate", "input=t.en", "decoding.shortlist=auto", "engine=ctranslate2"]
    shown(capsys, *call, "checkpoint=export", "output=alone")
    with_run = [*call, "checkpoint=run", "engine_folder=export"]
    shown(capsys, *with_run, "output=beside")
    assert Path("alone").read_text() == Path("beside").read_text()
    shown(capsys, "shortlist", "checkpoint=run", "best=1", "frequent=1")
    _, error = shown(capsys, *with_run, "output=other", code=2)
    assert "vmap.txt is missing, or of another shortlist" in error
    Path("export/vmap.txt").unlink()
    _, error = shown(capsys, *call, "checkpoint=export", "output=other", code=2)
    assert "vmap.txt is missing, or" in error and error.count("\n") == 1


def test_an_automatic_export_is_that_of_the_present_shortlist(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(export_formats, "write_export", lambda *call: call[-1].mkdir(parents=True))
    found = []
    for best in (None, 1, 2, 2):
        if best:
            shown(capsys, "shortlist", "checkpoint=run", f"best={best}", "frequent=1")
        shown(capsys, "translate", "checkpoint=run", "input=t.en", "output=o", "engine=auto")
        found.append(len([*Path("run/export").glob("auto-*")]))
        Path("o").unlink()
    assert found == [1, 2, 3, 3]
