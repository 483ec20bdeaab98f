"""Imported Marian models compute what transformers does, and go back bit for bit."""

import json
import math
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.data.corpora import tokenizer_config
from tests.helpers.decoding.steps import search_config
from tests.helpers.interchange.imported_twins import assert_same_logits
from tests.helpers.interchange.marian_folders import (
    change_json,
    marian_folder,
    npz_folder,
    sentences,
)
from tests.helpers.lazy import hf
from tests.helpers.model.huggingface_twins import spread
from tests.helpers.model.models import run_of, tiny_transformer
from transformer.__main__ import main
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.huggingface import write_huggingface
from transformer.interchange.architectures.marian import import_tokenizer
from transformer.interchange.import_model import read_folder, read_weights
from transformer.settings.tokenizer import EOS
from transformer.training.losses.cross_entropy import cross_entropy, joined_bias

CASES: dict[str, dict[str, Any]] = {
    "joint": {},
    "separate": {"separate": True},
    "codes": {"codes": ("deu", "nld")},
    "half": {"half": True, "activation_function": "gelu", "kind": "bpe"},
}


@pytest.mark.parametrize(
    "name",
    [
        "joint",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in CASES if name != "joint"),
    ],
)
def test_an_imported_model_is_that_of_transformers(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = marian_folder(tmp_path / "marian", **CASES[name])
    for language in ("en", "de"):
        # The last is too long for the model.
        lines = [*sentences(language, "validation", 12), "ein " * 200]
        Path(f"v.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    call = ["import", "checkpoint=marian", "output=run"]
    assert main([*call, "validation=[gone.en,v.de]"]) == 2 and not Path("run").exists()
    assert capsys.readouterr().err.endswith("error: validation: gone.en: no such file\n")
    assert main([*call, "validation=[v.en,v.de]"]) == 0
    model = hf.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = hf.MarianTokenizer.from_pretrained(folder)
    translator = Translator.load("run")
    texts = sentences("en", "test", 60)
    given, asked = texts, texts
    if name == "codes":
        given = [TaggedText(text, SourceTags("nld")) for text in texts]
        asked = [f">>nld<< {text}" for text in texts]
    encoded = tokenizer(asked, return_tensors="pt", padding=True)

    _, source, target = import_tokenizer(folder)
    rows = [[*row, EOS] for row in translator.tokenizer.encode_source(given)]
    lengths = encoded.attention_mask.sum(1).tolist()
    assert [[source.rows[i] for i in row] for row in rows] == [
        ids[:length] for ids, length in zip(encoded.input_ids.tolist(), lengths, strict=True)
    ]
    assert_same_logits(translator, model, encoded, rows, target)

    if name != "codes":
        call = ["export", "checkpoint=run", "format=huggingface", "output=back"]
        assert main(call) == 0
        before, after = read_weights(folder), read_weights(Path("back"))
        assert set(after) <= set(before)
        assert all(torch.equal(before[key].float(), after[key]) for key in after)
        for file in folder.glob("*vocab.json"):
            assert json.loads(file.read_text()) == json.loads(
                (Path("back") / file.name).read_text()
            )


def test_what_is_never_written_hardly_counts_in_training(tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "marian")
    assert main(["import", f"checkpoint={folder}", f"output={tmp_path / 'run'}"]) == 0
    translator = Translator.load(tmp_path / "run")
    projection = translator.model.projection
    hidden = torch.randn(50, projection.in_features, generator=torch.manual_seed(1))
    loss = partial(cross_entropy, *joined_bias(hidden, projection), torch.randint(4, 100, (50,)))
    assert abs(loss(label_smoothing=0.1) - loss(label_smoothing=0.0)) / 50 < 0.5


NASTY = ["", "groß\u0308e", "<s> <start> <rest> <0x41>", "😀 日本語 Ωmega", "ﬁ ２", "a" * 300, "\0"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"separate": True}, {"kind": "bpe"}, {"kind": "bpe", "byte_fallback": True}],
    ids=str,
)
def test_text_is_cut_as_there(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = marian_folder(tmp_path / "marian", **settings)
    there = hf.MarianTokenizer.from_pretrained(folder)
    # Text that spells a symbol of the vocabulary is that symbol there, and text here.
    names = sorted(name for name in there.get_vocab() if not re.fullmatch("</?[a-z]+>", name))
    letters, drawn = "".join(names) + "éøλж中", random.Random(0)
    texts = [*NASTY, *sentences("de", "test", 100), *sentences("en", "test", 100)]
    for choices, most in ((letters, 30), (names, 6)):
        drafts = ("".join(drawn.choices(choices, k=drawn.randint(1, most))) for _ in range(300))
        texts += [draft.replace("▁", " ") for draft in drafts]
    tokenizer, source, target = import_tokenizer(folder)
    for rows, ids, expected in (
        (source.rows, tokenizer.encode_source(texts), there(texts).input_ids),
        (target.rows, tokenizer.encode_target(texts), there(text_target=texts).input_ids),
    ):
        for text, row, right in zip(texts, ids, expected, strict=True):
            assert [*(rows[one] for one in row), 0] == right, text


NPZ: dict[str, dict[str, Any]] = {
    "joint": {},
    "separate": {"separate": True, "activation_function": "relu"},
    "codes": {"codes": ("deu", "nld"), "kind": "bpe"},
    "spm": {"spm": True},
}


@pytest.mark.parametrize("name", NPZ)
def test_a_model_of_marian_itself_is_the_same(name: str, tmp_path: Path) -> None:
    other = marian_folder(tmp_path / "huggingface", **NPZ[name])
    folder = npz_folder(tmp_path / "npz", other, spm=name == "spm")
    found, right = map(read_folder, (folder, other))
    assert found.weights.keys() == right.weights.keys()
    assert all(torch.equal(found.weights[key], right.weights[key]) for key in right.weights)
    assert found.tokenizer.fingerprint == right.tokenizer.fingerprint
    assert found.model == replace(right.model, max_length=512)
    assert found.decoding == replace(right.decoding, beam_size=6)


@pytest.mark.parametrize(
    ("algorithm", "joint", "tags", "changes"),
    [
        ("unigram", True, Tags(targets=("deu", "nld")), {"output_bias": True}),
        ("unigram", False, Tags(), {"norm_order": "post", "tie_embeddings": "decoder"}),
        ("bpe", True, Tags(), {"norm_order": "post", "activation": "swish"}),
    ],
)
def test_an_export_comes_back(
    algorithm: str, joint: bool, tags: Tags, changes: dict[str, Any], tmp_path: Path
) -> None:
    pairs = list(zip(sentences("en", count=300), sentences("de", count=300), strict=True))
    config = tokenizer_config(algorithm=algorithm, vocab_size=400, joint=joint)
    tokenizer = Tokenizer.train(config, lambda: pairs).with_tags(tags)
    model = tiny_transformer(
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        **changes,
    )
    spread(model, 1, biases=changes.get("output_bias", False))
    search = search_config(length_penalty=0.5, length_penalty_form="average", beam_size=5)
    original = Translator(model, tokenizer, search, batch_tokens=1000)
    (tmp_path / "export").mkdir()
    run = run_of(model.config, data={"source": "en", "target": "de"})
    write_huggingface(original, run, tmp_path / "export")
    arguments = [f"checkpoint={tmp_path / 'export'}", f"output={tmp_path / 'run'}"]
    assert main(["import", *arguments]) == 0
    back = Translator.load(tmp_path / "run")
    texts = [
        TaggedText(text, SourceTags(*tags.targets[:1])) for text in sentences("en", "test", 20)
    ]
    assert [translation.text for translation in replace(back, search=search).translate(texts)] == [
        translation.text for translation in original.translate(texts)
    ]
    weights = back.model.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[key], weight) for key, weight in model.state_dict().items())
    assert back.tokenizer.fingerprint == tokenizer.fingerprint
    assert back.tokenizer.joint == joint
    assert back.search.beam_size == 5
    assert back.search.length_penalty == 0.5
    assert back.search.length_penalty_form == "average"


class Payload:
    """Runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path("owned").touch, ()


def spoil_weight() -> None:
    weights = load_file("bad/model.safetensors")
    weights["model.encoder.layers.0.fc1.bias"][3] = math.nan
    save_file(weights, "bad/model.safetensors")


def write_program() -> None:
    Path("bad/model.safetensors").unlink()
    torch.save(Payload(), "bad/pytorch_model.bin")


def change_config(**values: Any) -> None:
    change_json(Path("bad/config.json"), **values)


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "huge": (partial(change_config, d_model=10**9), "d_model=1000000000 must be"),
    "program": (write_program, "pytorch_model.bin cannot be read"),
    "not a number": (spoil_weight, "bad: its weights hold NaN or infinity"),
    "no JSON": (lambda: Path("bad/vocab.json").write_text("[" * 100_000), "vocab.json cannot"),
}


def add_positions() -> None:
    arrays = dict(np.load("bad/model.npz"))
    np.savez("bad/model.npz", **arrays, Wpos=np.zeros((32, 32), np.float32))


def zip_bomb() -> None:
    with zipfile.ZipFile("bad/model.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.npy", bytes(10**7))


FAULTS |= {
    "npz: program": (
        lambda: np.savez("bad/model.npz", Wemb=np.array([Payload()])),
        "Object arrays cannot be loaded",
    ),
    "npz: path": (
        lambda: Path("bad/decoder.yml").write_text("models: [../../etc/passwd]"),
        "decoder.yml must name 1 of models, without a folder",
    ),
    "npz: bomb": (zip_bomb, "it unpacks to more than 4 times its size"),
    "npz: learned positions": (add_positions, "the array 'Wpos' is of a model that cannot"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    root = tmp_path_factory.mktemp("folders")
    folder = marian_folder(root / "marian")
    return {False: folder, True: npz_folder(root / "npz", folder)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_folder_is_refused_in_one_line(
    name: str,
    folders: dict[bool, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folders[name.startswith("npz")], "bad")
    damage, message = FAULTS[name]
    damage()
    assert main(["import", "checkpoint=bad", "output=run"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad"]
