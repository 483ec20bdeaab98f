"""A model in ONNX computes what ours does, and its tokenizer cuts as ours."""

import hashlib
import io
import json
import random
import tarfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from tests.helpers.checks import no_checks
from tests.helpers.decoding.metrics import RAW
from tests.helpers.decoding.translators import PAIRS, wordy_translator
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner, batched_attention
from transformer.decoding.translator import Translator
from transformer.interchange.onnx import OnnxGreedy, tokenizer_files, verify_onnx, write_onnx
from transformer.interchange.web_page import Archive, find_runtime
from transformer.model.head_masks import HeadName
from transformer.settings.tokenizer import EOS, PAD, TokenizerConfig

TEXTS = [source for source, _ in PAIRS]
NASTY = ["  two   cats ", "Zwo\u0308lf ﬁ 日本 😀", "<0x41> x", "tab\there", "a\u00a0dog", "aaaaaaa"]


def same(translator: Translator, folder: Path, texts: list[str]) -> int:
    """The number of equal translations."""
    ours = [translation.text for translation in translator.translate(texts)]
    return sum(a == b for a, b in zip(ours, OnnxGreedy(folder)(texts), strict=True))


@pytest.fixture(scope="module")
def translator() -> Translator:
    head = Aligner(HeadName("cross", 0, 1))
    return wordy_translator(aligner=head, encoder_layers=1, decoder_layers=1)


@pytest.fixture(scope="module")
def exported(translator: Translator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    with no_checks():
        write_onnx(translator, folder, "float32")
    return folder


@pytest.mark.thorough
def test_an_export_translates_as_its_model(translator: Translator, exported: Path) -> None:
    words = " ".join(TEXTS).split()
    draw = random.Random(1)
    drawn = [" ".join(draw.choices(words, k=draw.randint(1, 12))) for _ in range(50)]
    assert len({translation.text for translation in translator.translate(drawn)}) > 10
    texts = [*TEXTS, *NASTY, " ", *drawn]
    assert same(translator, exported, texts) == len(texts)
    found = verify_onnx(translator, exported, [(s, (t,)) for s, t in PAIRS], RAW)
    assert (found["equal"], found["sentences"]) == (1, len(PAIRS))
    other = wordy_translator(encoder_layers=1, decoder_layers=2)
    assert same(other, exported, TEXTS) < len(TEXTS)


@pytest.mark.thorough
def test_padding_changes_nothing(translator: Translator, exported: Path) -> None:
    search = OnnxGreedy(exported)
    ids = [[*row, EOS] for row in translator.tokenizer.encode_source(TEXTS[:2])]
    width = max(map(len, ids))
    source = np.array([row + [PAD] * (width - len(row)) for row in ids])
    mask = (source != PAD).astype(np.int64)
    target = np.array([[2, 7, 8, 9], [2, 9, 8, 7]])
    with torch.no_grad():
        hidden = translator.model(torch.from_numpy(source), torch.from_numpy(target))
        expected = translator.model.logits(hidden).numpy()
    [memory] = search.encoder.run(None, {"input_ids": source, "attention_mask": mask})
    inputs = {"input_ids": target, "encoder_attention_mask": mask, "encoder_hidden_states": memory}
    for tensor in search.cache:
        inputs[tensor.name] = np.zeros((2, tensor.shape[1], 0, tensor.shape[3]), np.float32)
    logits, weights, *_ = search.decoder.run(None, inputs)
    np.testing.assert_allclose(logits[..., 3:], expected[..., 3:], atol=1e-4)
    assert (logits[..., [0, 2]] < -1000).all()
    # The row of a token links the word that it predicts.
    pairs = [(ids[0][:-1], [7, 8, 9])]
    [attention] = batched_attention(translator.model, pairs, translator.aligner.head)
    rows = weights[0, :3, : len(ids[0]) - 1]
    np.testing.assert_allclose(rows, attention.detach().numpy(), atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "norm": "rms", "activation": "swiglu", "num_kv_heads": 1},
        {"positions": "learned", "norm_order": "post", "tie_embeddings": "none"},
        {"positions": "relative", "query_key_norm": True},
    ],
    ids=lambda changes: str(changes["positions"]),
)
def test_kinds_of_models(changes: dict[str, Any], tmp_path: Path, unchecked: None) -> None:
    translator = wordy_translator(**changes)
    write_onnx(translator, tmp_path, "float32")
    assert same(translator, tmp_path, TEXTS) == len(TEXTS)


@pytest.mark.thorough
def test_int8_is_smaller_and_nearly_equal(
    translator: Translator, exported: Path, tmp_path: Path, unchecked: None
) -> None:
    write_onnx(translator, tmp_path, "int8")
    sizes = [sum(f.stat().st_size for f in (x / "onnx").iterdir()) for x in (exported, tmp_path)]
    # In so small a model, names and nodes weigh most.
    assert sizes[1] < 0.9 * sizes[0]
    assert same(translator, tmp_path, TEXTS) >= 0.5 * len(TEXTS)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_the_tokenizer_cuts_as_ours(algorithm: Any) -> None:
    config = TokenizerConfig(algorithm=algorithm, vocab_size=300, character_coverage=1.0)
    own = Tokenizer.train(config, lambda: PAIRS)
    [content] = tokenizer_files(own)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    # The unigram of the library tokenizers takes the name of a byte in a text for that byte.
    texts = [text for text in [*TEXTS, *NASTY, ""] if algorithm == "bpe" or "<0x" not in text]
    ids = own.encode_source(texts)
    assert [encoding.ids for encoding in theirs.encode_batch(texts)] == [[*row, EOS] for row in ids]
    assert [theirs.decode(row) for row in ids] == own.decode_target(ids)


def test_a_page_knows_the_longest_source_and_the_longest_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer.interchange.onnx.write_graphs", lambda *_: None)
    for changes, limits in (({}, (29, 30)), ({"max_source_length": 9}, (8, 30))):
        translator = wordy_translator(positions="learned", max_length=30, **changes)
        folder = tmp_path / str(limits)
        folder.mkdir()
        write_onnx(translator, folder, "float32")
        written = json.loads((folder / "config.json").read_text())
        assert (written["max_source"], written["max_length"]) == limits


def test_what_onnx_cannot_hold_is_refused(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="quantization=int16"):
        write_onnx(translator, tmp_path, "int16")
    words = translator.tokenizer.with_words(["qx"])
    with pytest.raises(InputError, match=r"tokenizer\.add"):
        tokenizer_files(words)
    config = replace(translator.tokenizer.config, algorithm="char", vocab_size=None)
    with pytest.raises(InputError, match="tokenizer=bpe or unigram"):
        tokenizer_files(Tokenizer.train(config, lambda: PAIRS))
    with pytest.raises(InputError, match="npm install onnxruntime-web"):
        find_runtime(tmp_path, tmp_path)


def test_the_runtime_of_a_page_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm", "another.mjs"]
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    monkeypatch.chdir(tmp_path)  # where no node_modules are
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}/package.tgz"
        with pytest.raises(InputError, match=r"cannot fetch .*hash"):
            find_runtime(None, tmp_path / "cache", Archive(address, "0" * 128))
        digest = hashlib.sha512((tmp_path / "package.tgz").read_bytes()).hexdigest()
        archive = Archive(address, digest)
        runtime = find_runtime(None, tmp_path / "cache", archive)
        server.shutdown()
    assert {file.name for file in runtime.iterdir()} == set(names[:2])
    # The server is gone.
    assert find_runtime(None, tmp_path / "cache", archive) == runtime
