"""Imported Marian models compute and translate what transformers does, and go back bit for bit."""

import json
import math
import pickle
import random
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
import yaml
from ctranslate2.converters import MarianConverter
from safetensors.torch import load_file, save_file

from tests.helpers.data.corpora import tokenizer_config
from tests.helpers.decoding.steps import search_config
from tests.helpers.interchange.imported_twins import assert_same_logits, limited_search
from tests.helpers.interchange.marian_folders import (
    change_json,
    marian_folder,
    npz_folder,
    sentences,
    theirs,
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
from transformer.training.losses.cross_entropy import cross_entropy, joined_bias

LIMIT = 60
SIDES = ("source", "target")
CASES: dict[str, dict[str, Any]] = {
    "joint": {"ends": 2.0},
    "separate": {"separate": True, "ends": 4.0, "seed": 3},
    "codes": {"codes": ("deu", "nld"), "ends": 5.0, "seed": 2},
    "half": {"half": True, "ends": 2.0},
    "gelu": {"activation_function": "gelu", "d_model": 48, "ends": 5.5},
    "bpe": {"kind": "bpe", "ends": 4.5},
}
"""Random models that say different things, and end often enough."""


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
    model, tokenizer = theirs(folder)
    translator = Translator.load("run")
    texts = sentences("en", "test", 60)
    given, asked = texts, texts
    if name == "codes":
        given = [TaggedText(text, SourceTags("nld")) for text in texts]
        asked = [f">>nld<< {text}" for text in texts]
    encoded = tokenizer(asked, return_tensors="pt", padding=True)

    _, source, target = import_tokenizer(folder)
    rows = [[*row, 3] for row in translator.tokenizer.encode_source(given)]
    lengths = encoded.attention_mask.sum(1).tolist()
    assert [[source.rows[i] for i in row] for row in rows] == [
        ids[:length] for ids, length in zip(encoded.input_ids.tolist(), lengths, strict=True)
    ]

    assert_same_logits(translator, model, encoded, rows, target)

    for beam in (1, 4):
        with torch.no_grad():
            found = model.generate(
                **encoded,
                num_beams=beam,
                max_length=LIMIT + 2,
                early_stopping="never" if beam > 1 else False,
                renormalize_logits=True,
            )
        expected = tokenizer.batch_decode(found, skip_special_tokens=True)
        # At the limit of the length, transformers takes the end for certain.
        whole = [
            index for index, ids in enumerate(found.tolist()) if ids.index(0, 1) + 1 < LIMIT + 2
        ]
        assert len(whole) >= (10 if name == "joint" else 5)
        assert len({expected[i] for i in whole}) > 3
        translated = [
            translation.text
            for translation in limited_search(translator, beam, LIMIT).translate(given)
        ]
        assert [translated[i] for i in whole] == [expected[i] for i in whole]

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
    folder = marian_folder(tmp_path / "marian", ends=2.0)
    assert main(["import", f"checkpoint={folder}", f"output={tmp_path / 'run'}"]) == 0
    translator = Translator.load(tmp_path / "run")
    projection = translator.model.projection
    hidden = torch.randn(50, projection.in_features, generator=torch.manual_seed(1))
    loss = partial(cross_entropy, *joined_bias(hidden, projection), torch.randint(4, 100, (50,)))
    assert abs(loss(label_smoothing=0.1) - loss(label_smoothing=0.0)) / 50 < 0.5
    with torch.no_grad():
        projection.bias += 0.25  # as training moves it
    (tmp_path / "back").mkdir()
    run = run_of(translator.model.config, data={"source": "en", "target": "de"})
    write_huggingface(translator, run, tmp_path / "back")
    before, after = (
        read_weights(one)["final_logits_bias"][0] for one in (folder, tmp_path / "back")
    )
    *pieces, pad = (after - before).tolist()
    assert pad == 0 and pieces == pytest.approx([0.25] * len(pieces))


NASTY = [
    "",
    " ",
    "Ä",
    "ÄÄ",
    "ßß",
    "äÖß über",
    "größte Straße",
    "groß\u0308e",
    "ein der sch ch en",
    "<s> <start> <rest> <0x41>",
    "😀😀 €uro 日本語 Ωmega",
    "ﬁ ① ２ Å",
    "a" * 300,
    "\0",
    "\t tab\u00a0nbsp \u200bzero\u3000wide",
]


@pytest.mark.parametrize("separate", [False, True], ids=["joint", "separate"])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "bpe with bytes"])
def test_text_is_cut_as_there(kind: str, separate: bool, tmp_path: Path) -> None:
    folder = marian_folder(
        tmp_path / "marian",
        kind=kind.split()[0],
        byte_fallback=kind.endswith("bytes"),
        separate=separate,
    )
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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name in ("joint", "separate") else ())
        for name in NPZ
    ],
)
def test_a_model_of_marian_itself_is_the_same(name: str, tmp_path: Path) -> None:
    other = marian_folder(tmp_path / "huggingface", ends=1.5, **NPZ[name])
    folder = npz_folder(tmp_path / "npz", other, spm=name == "spm")
    found, right = map(read_folder, (folder, other))
    assert found.weights.keys() == right.weights.keys()
    assert all(torch.equal(found.weights[key], right.weights[key]) for key in right.weights)
    assert found.tokenizer.fingerprint == right.tokenizer.fingerprint
    assert found.model == replace(right.model, max_length=512)
    assert found.decoding == replace(right.decoding, beam_size=6)
    if name == "spm":
        return  # The converter knows no such vocabulary.

    files = sorted(map(str, folder.glob("*vocab.yml")))
    MarianConverter(str(folder / "model.npz"), files).convert(str(tmp_path / "engine"))
    engine = ctranslate2.Translator(str(tmp_path / "engine"))
    assert main(["import", f"checkpoint={folder}", f"output={tmp_path / 'run'}"]) == 0
    translator = Translator.load(tmp_path / "run")
    greedy = {"algorithm": "greedy", "beam_size": 1, "max_length_ratio": 0.0}
    search = replace(translator.search, max_length_offset=LIMIT, **greedy)
    texts: list[str] = sentences("en", "test", 40)
    cutter = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    tags = [">>nld<<"] if name == "codes" else []
    results = engine.translate_batch(
        [tags + cutter.encode(text, out_type=str) for text in texts],
        beam_size=1,
        min_decoding_length=0,
        max_decoding_length=LIMIT,
    )
    if tags:
        texts = [TaggedText(text, SourceTags("nld")) for text in texts]
    translated = [
        list(translation.tokens)
        for translation in replace(translator, search=search).translate(texts)
    ]
    assert translated == [result.hypotheses[0] for result in results]


@pytest.mark.parametrize(
    ("algorithm", "joint", "tags", "changes"),
    [
        pytest.param("bpe", True, Tags(), {}, marks=pytest.mark.thorough),
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
    sizes = {f"{side}_vocab_size": getattr(tokenizer, f"{side}_vocab_size") for side in SIDES}
    model = tiny_transformer(**sizes, **changes)
    spread(model, 1, biases=changes.get("output_bias", False))
    search = search_config(length_penalty=0.5, length_penalty_form="average", beam_size=5)
    given = Translator(model, tokenizer, search, batch_tokens=1000)
    (tmp_path / "export").mkdir()
    run = run_of(model.config, data={"source": "en", "target": "de"})
    write_huggingface(given, run, tmp_path / "export")
    arguments = [f"checkpoint={tmp_path / 'export'}", f"output={tmp_path / 'run'}"]
    assert main(["import", *arguments]) == 0
    back = Translator.load(tmp_path / "run")
    texts = [
        TaggedText(text, SourceTags(*tags.targets[:1])) for text in sentences("en", "test", 20)
    ]
    assert [translation.text for translation in replace(back, search=search).translate(texts)] == [
        translation.text for translation in given.translate(texts)
    ]
    weights = back.model.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[key], weight) for key, weight in model.state_dict().items())
    assert back.tokenizer.fingerprint == tokenizer.fingerprint
    assert back.tokenizer.joint == joint
    found = (back.search.beam_size, back.search.length_penalty, back.search.length_penalty_form)
    assert found == (5, 0.5, "average")


class Payload:
    """What runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path("owned").touch, ()


def spoil_weight() -> None:
    weights = load_file("bad/model.safetensors")
    weights["model.encoder.layers.0.fc1.bias"][3] = math.nan
    save_file(weights, "bad/model.safetensors")


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "huge": (
        lambda: change_json(Path("bad/config.json"), d_model=10**9),
        "d_model=1000000000 must be",
    ),
    "other sizes": (
        lambda: change_json(Path("bad/config.json"), encoder_ffn_dim=64, decoder_ffn_dim=64),
        "fc1.weight must have the shape (64, 32), not (48, 32)",
    ),
    "program": (
        lambda: (
            Path("bad/model.safetensors").unlink(),
            torch.save(Payload(), "bad/pytorch_model.bin"),
        ),
        "pytorch_model.bin cannot be read",
    ),
    "bare program": (
        lambda: (
            Path("bad/model.safetensors").unlink(),
            Path("bad/pytorch_model.bin").write_bytes(pickle.dumps(Payload(), protocol=4)),
        ),
        "pytorch_model.bin cannot be read",
    ),
    "not a number": (spoil_weight, "bad: its weights hold NaN or infinity"),
    "start": (
        lambda: change_json(Path("bad/generation_config.json"), decoder_start_token_id=3),
        "decoder_start_token_id=3 in config.json or generation_config.json must be ",
    ),
    "no JSON": (
        lambda: Path("bad/vocab.json").write_text("[" * 100_000),
        "vocab.json cannot be read",
    ),
    "ids": (
        lambda: change_json(Path("bad/vocab.json"), **{"<unk>": 0}),
        "vocab.json does not give the ids 0 to",
    ),
    "no vocabulary": (
        lambda: Path("bad/source.spm").write_bytes(b"\xff" * 100),
        "source.spm cannot be read",
    ),
    "missing": (lambda: Path("bad/target.spm").unlink(), "target.spm cannot be read"),
}


def edit(name: str, before: str, after: str) -> None:
    file = Path("bad", name)
    text = file.read_text("utf-8")
    assert before in text
    file.write_text(text.replace(before, after), encoding="utf-8")


def replace_array(name: str, array: Any) -> None:
    arrays = dict(np.load("bad/model.npz"))
    np.savez("bad/model.npz", **arrays | {name: array})


def settings(**values: Any) -> None:
    text = yaml.safe_dump(values).encode()
    replace_array("special:model.yml", np.frombuffer(text, np.int8))


def huge_header() -> None:
    """One array declares 4 TB, and has none."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    with zipfile.ZipFile("bad/model.npz", "a") as archive, archive.open("huge.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)


def zip_bomb() -> None:
    with zipfile.ZipFile("bad/model.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.npy", bytes(10**7))


ALIASES = "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}1]\n" for i in range(1, 40)).replace(
    "*a0", "1"
)
FAULTS |= {
    "npz: payload": (
        lambda: np.savez("bad/model.npz", Wemb=np.array([Payload()])),
        "Object arrays cannot be loaded when allow_pickle=False",
    ),
    "npz: pickle": (
        lambda: Path("bad/model.npz").write_bytes(pickle.dumps(Payload())),
        "model.npz cannot be read: File is not a zip file",
    ),
    "npz: path": (
        lambda: edit("decoder.yml", "- model.npz", "- ../../etc/passwd"),
        "decoder.yml must name 1 of models, without a folder",
    ),
    "npz: object": (
        lambda: edit("decoder.yml", "normalize: 1", "normalize: !!python/object/apply:os.abort []"),
        "'normalize' cannot be read",
    ),
    "npz: aliases as models": (
        lambda: edit("decoder.yml", "models:\n- model.npz", f"{ALIASES}models: [*a39]"),
        "decoder.yml must name 1 of models, without a folder",
    ),
    "npz: nested": (
        lambda: Path("bad/opus.vocab.yml").write_text("[" * 100_000),
        "opus.vocab.yml cannot be read: it is too deep",
    ),
    "npz: header": (huge_header, "model.npz cannot be read"),
    "npz: bomb": (zip_bomb, "model.npz cannot be read: it unpacks to more than 4 times its size"),
    "npz: no floats": (
        lambda: replace_array("encoder_l1_ffn_W1", np.zeros((32, 48), np.int8)),
        "encoder_l1_ffn_W1 is missing, or no matrix of floats",
    ),
    "npz: learned positions": (
        lambda: replace_array("Wpos", np.zeros((32, 32), np.float32)),
        "the array 'Wpos' is of a model that cannot be imported",
    ),
    "npz: pre-norm": (
        lambda: settings(**{"transformer-preprocess": "n"}),
        "transformer-preprocess cannot be imported, only with the value ''",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    root = tmp_path_factory.mktemp("good")
    folder = marian_folder(root / "marian")
    return {False: folder, True: npz_folder(root / "npz", folder)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_folder_is_refused_in_one_line(
    name: str,
    good: dict[bool, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(good[name.startswith("npz")], "bad")
    damage, message = FAULTS[name]
    damage()
    with warnings.catch_warnings():
        # pytest would keep one from the screen.
        warnings.simplefilter("error", UserWarning)
        assert main(["import", "checkpoint=bad", "output=run"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad"]
