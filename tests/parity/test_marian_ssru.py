"""An imported student of Marian, with a recurrent decoder, computes what Marian's formulas say.

They stand here in numpy, by the names of Marian's arrays; source: Marian 1.12,
``src/models/transformer.h``, ``src/rnn/cells.h`` (SSRU) and ``src/tensors/cpu``.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.helpers.interchange.marian_folders import marian_folder, npz_folder, sentences
from transformer.__main__ import main
from transformer.decoding.translator import Translator
from transformer.settings.tokenizer import BOS, EOS

WIDTH, HEADS, ENCODER, DECODER = 32, 4, 2, 3
START = -1
"""The vector of zeros that a translation starts with; it has no row."""


def student(folder: Path, tied: bool = False, **settings: Any) -> Path:
    """A folder of Marian whose decoder has SSRUs, with random weights."""
    folder.mkdir()
    source = marian_folder(folder / "plain", activation_function="relu")
    made = npz_folder(
        folder / "npz",
        source,
        **{
            "transformer-decoder-autoreg": "rnn",
            "dec-cell": "ssru",
            "transformer-rnn-projection": False,
            "layer-normalization": False,
            **({"transformer-tied-layers": [1, 2, 1]} if tied else {}),
            **settings,
        },
    )
    arrays = dict(np.load(made / "model.npz"))
    drawn = np.random.default_rng(4)
    for number in range(1, DECODER + 1):
        layer = f"decoder_l{number}_"
        arrays = {n: a for n, a in arrays.items() if not n.startswith(f"{layer}self_")}
        for name, shape, size in (
            ("W", (WIDTH, WIDTH), 0.25),
            ("Wf", (WIDTH, WIDTH), 0.25),
            ("bf", (1, WIDTH), 0.5),
            ("ffn_ln_scale", (1, WIDTH), 0.1),
            ("ffn_ln_bias", (1, WIDTH), 0.1),
        ):
            noise = size * drawn.standard_normal(shape) + (name == "ffn_ln_scale")
            arrays[f"{layer}rnn_{name}"] = noise.astype(np.float32)
        if tied and number == DECODER:
            arrays = {n: a for n, a in arrays.items() if not n.startswith(layer)}
    np.savez(made / "model.npz", **arrays)
    return made


class Marian:
    """The forward pass in float64."""

    def __init__(self, folder: Path) -> None:
        arrays = dict(np.load(folder / "model.npz"))
        self.settings = yaml.safe_load(arrays.pop("special:model.yml").tobytes().rstrip(b"\0"))
        self.arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        self.ids: dict[str, int] = yaml.safe_load((folder / "opus.vocab.yml").read_text("utf-8"))

    def affine(self, x: np.ndarray, weight: str, bias: str) -> np.ndarray:
        return x @ self.arrays[weight] + self.arrays[bias]

    def post(self, output: np.ndarray, x: np.ndarray, prefix: str) -> np.ndarray:
        """``dan`` without dropout: add the input, normalize."""
        x = output + x
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * self.arrays[f"{prefix}_ln_scale"] + self.arrays[f"{prefix}_ln_bias"]

    def embed(self, ids: list[int]) -> np.ndarray:
        rows = [np.zeros(WIDTH) if i == START else self.arrays["Wemb"][i] for i in ids]
        half = WIDTH // 2
        angles = np.arange(len(ids))[:, None] * np.exp(-np.arange(half) * np.log(1e4) / (half - 1))
        return np.sqrt(WIDTH) * np.array(rows) + np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def attend(self, x: np.ndarray, memory: np.ndarray, prefix: str) -> np.ndarray:
        query, key, value = (
            self.affine(inputs, f"{prefix}_W{name}", f"{prefix}_b{name}")
            for inputs, name in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        joined = []
        for head in np.split(np.arange(WIDTH), HEADS):
            scores = query[:, head] @ key[:, head].T / np.sqrt(WIDTH // HEADS)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            joined.append(weights / weights.sum(-1, keepdims=True) @ value[:, head])
        output = self.affine(np.concatenate(joined, 1), f"{prefix}_Wo", f"{prefix}_bo")
        return self.post(output, x, f"{prefix}_Wo")

    def feed_forward(self, x: np.ndarray, prefix: str) -> np.ndarray:
        inner = np.maximum(self.affine(x, f"{prefix}_W1", f"{prefix}_b1"), 0)
        return self.post(self.affine(inner, f"{prefix}_W2", f"{prefix}_b2"), x, f"{prefix}_ffn")

    def recur(self, x: np.ndarray, prefix: str) -> np.ndarray:
        """``highway(c, x W, x Wf + bf)``, then ReLU."""
        cell, outputs = np.zeros(WIDTH), []
        for row in x:
            gate = 1 / (1 + np.exp(-self.affine(row, f"{prefix}_Wf", f"{prefix}_bf")[0]))
            cell = gate * cell + (1 - gate) * (row @ self.arrays[f"{prefix}_W"])
            outputs.append(np.maximum(cell, 0))
        return self.post(np.array(outputs), x, f"{prefix}_ffn")

    def logits(self, source: list[int], target: list[int]) -> np.ndarray:
        """Of the next token after each prefix of the target, which begins with START."""
        memory = self.embed([*source, self.ids["</s>"]])
        for number in range(1, ENCODER + 1):
            memory = self.attend(memory, memory, f"encoder_l{number}_self")
            memory = self.feed_forward(memory, f"encoder_l{number}_ffn")
        x = self.embed(target)
        for number in self.settings.get("transformer-tied-layers") or range(1, DECODER + 1):
            x = self.recur(x, f"decoder_l{number}_rnn")
            x = self.attend(x, memory, f"decoder_l{number}_context")
            x = self.feed_forward(x, f"decoder_l{number}_ffn")
        return x @ self.arrays["Wemb"].T + self.arrays["decoder_ff_logit_out_b"]


@pytest.mark.parametrize("tied", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_student_computes_what_marian_does(tied: bool, tmp_path: Path) -> None:
    folder = student(tmp_path / "marian", tied)
    assert main(["import", f"checkpoint={folder}", f"output={tmp_path / 'run'}"]) == 0
    translator, marian = Translator.load(tmp_path / "run"), Marian(folder)
    tokenizer = translator.tokenizer
    spelled = tokenizer.subwords(range(tokenizer.target_vocab_size))
    known = {name: number for number, name in enumerate(spelled) if name in marian.ids}
    texts = sentences("en", "test", 12)
    rows = tokenizer.encode_source(texts)
    theirs = [[marian.ids.get(spelled[i], 1) for i in row] for row in rows]
    here = list(known.values())
    there = [marian.ids[name] for name in known]
    for row, source in zip(rows, theirs, strict=True):
        target = here[7:60:5]
        with torch.no_grad():
            hidden = translator.model(torch.tensor([[*row, EOS]]), torch.tensor([[BOS, *target]]))
            ours = translator.model.logits(hidden)[0, :, here].double().numpy()
        prefix = [START, *(marian.ids[spelled[i]] for i in target)]
        np.testing.assert_allclose(ours, marian.logits(source, prefix)[:, there], atol=1e-4)
    table = translator.model.state_dict()["target_embedding.positions.table"]
    assert table.shape == (512, WIDTH)
    assert table[511, WIDTH // 2 - 1].item() == pytest.approx(np.sin(511 / 1e4), abs=1e-6)


def test_another_recurrence_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults: list[tuple[dict[str, Any], str]] = [
        ({"dec-cell": "gru"}, "dec-cell cannot be imported, only with the value 'ssru'"),
        ({"transformer-tied-layers": [1, 1, 1]}, "the array 'decoder_l2_"),
        ({"transformer-tied-layers": [[1], 2, 3]}, "transformer-tied-layers cannot be read"),
        ({"transformer-decoder-autoreg": "self-attention"}, "decoder_l1_self_Wq is missing"),
    ]
    for number, (settings, message) in enumerate(faults):
        folder = student(tmp_path / str(number), **settings)
        capsys.readouterr()
        assert main(["import", f"checkpoint={folder}", f"output={tmp_path / 'run'}"]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, error
