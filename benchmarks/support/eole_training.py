"""Train Eole on the text of a run of ours, cut into the subwords of that run.

``python -m benchmarks.support.eole_training FOLDER KEY=VALUE… eole.python=PATH [eole.KEY=VALUE…]``:
keys of our run say text, subwords, size, tokens of a batch, updates and validations; PATH is the
Python of an environment with Eole (``pip install eole aiohttp``), whose packages contradict ours.
Eole saves at each validation; each checkpoint then translates the validation text, the best of them
the test set. Killed, it goes on from the last checkpoint and the last translation.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.support.peer import Outcome, Text, own_and_ours, write_outcome
from transformer.common.files import written_whole
from transformer.settings.tokenizer import UNK

TRAINING: dict[str, Any] = {
    "optim": "adam",
    "learning_rate": 2,
    "warmup_steps": 4000,
    "decay_method": "noam",
    "adam_beta2": 0.998,
    "max_grad_norm": 0,
    "label_smoothing": 0.1,
    "param_init_method": "xavier_uniform",
    "normalization": "tokens",
    "batch_type": "tokens",
    "dropout": [0.3],
    "attention_dropout": [0.1],
    "bucket_size": 262144,
    "average_decay": 0,
}
"""Those of recipes/wmt17/wmt17_ende.yaml of Eole, but for the dropout, 0.1 there, which is that of
Wu et al. 2021 for this text."""
SPECIAL = 4
"""Symbols before the subwords of our vocabulary; Eole has its own."""


class Eole:
    """A training in a folder, and its translations.

    Args:
        folder: Where all is.
        text: Of our run.
        python: Of Eole's environment.
        own: Keys of Eole's ``training``, in place of ``TRAINING``.
    """

    def __init__(self, folder: Path, text: Text, python: Path, own: dict[str, Any]) -> None:
        self.folder = folder
        self.text = text
        self.command = python.parent / "eole"
        self.own = own
        tokenizer = text.tokenizer
        self.pieces = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}

    def write_text(self) -> None:
        """Subwords with blanks between, and the vocabulary with a count for each, as Eole reads."""
        for split in ("train", "validation", "test"):
            sources, targets = zip(*self.text.pairs(split), strict=True)
            tokenizer = self.text.tokenizer
            encoded = (tokenizer.encode_source(sources), tokenizer.encode_target(targets))
            for side, rows in zip(("src", "tgt"), encoded, strict=True):
                self._write(f"{split}.{side}", (" ".join(self._spelled(row)) for row in rows))
        self._write("vocabulary", (f"{piece}\t1" for piece in self.pieces[SPECIAL:]))

    def _spelled(self, row: Sequence[int]) -> list[str]:
        return [self.pieces[piece] for piece in row]

    def _write(self, name: str, lines: Any) -> None:
        with written_whole(self.folder / name) as part:
            part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def config(self) -> dict[str, Any]:
        """Of ``eole train``."""
        run, model = self.text.config, self.text.config.model
        every = run.trainer.val_check_interval
        training = {
            **TRAINING,
            "batch_size": run.data.batch_tokens,
            "train_steps": run.trainer.max_steps,
            "valid_steps": every,
            "save_checkpoint_steps": every,
            "keep_checkpoint": -1,
            "model_path": str(self.folder / "model"),
            "world_size": 0,
            "gpu_ranks": [],
            "num_workers": 0,
            "compute_dtype": "fp32",
            **self.own,
        }
        if saved := self.checkpoints():
            training["train_from"] = str(saved[max(saved)])
        return {
            "seed": run.seed,
            "report_every": 100,
            "src_vocab": str(self.folder / "vocabulary"),
            "tgt_vocab": str(self.folder / "vocabulary"),
            "share_vocab": True,
            "src_vocab_size": len(self.pieces),
            "tgt_vocab_size": len(self.pieces),
            "overwrite": True,
            "n_sample": 0,
            "save_data": str(self.folder / "data"),
            "data": {
                "train": self._corpus("train"),
                "valid": self._corpus("validation"),
            },
            "training": training,
            "model": {
                "architecture": "transformer",
                "hidden_size": model.d_model,
                "transformer_ff": model.ffn_dim,
                "heads": model.num_heads,
                "encoder": {"layers": model.encoder_layers},
                "decoder": {"layers": model.decoder_layers},
                "share_embeddings": True,
                "share_decoder_embeddings": True,
                "embeddings": {
                    "word_vec_size": model.d_model,
                    "position_encoding_type": "SinusoidalInterleaved",
                },
            },
        }

    def _corpus(self, split: str) -> dict[str, str]:
        return {f"path_{side}": str(self.folder / f"{split}.{side}") for side in ("src", "tgt")}

    def checkpoints(self) -> dict[int, Path]:
        """By updates."""
        folders = (self.folder / "model").glob("step_*")
        return {int(folder.name.removeprefix("step_")): folder for folder in folders}

    def train(self) -> None:
        """To the last update, from the last checkpoint."""
        if self.text.config.trainer.max_steps in self.checkpoints():
            return
        self.write_text()
        self._call("train", "-config", self._yaml("train", self.config()))

    def translate(self, checkpoint: Path, split: str, name: str) -> list[str]:
        """Beam search of five; what is there already is not translated again."""
        output = self.folder / f"{name}.hyp"
        if not output.exists():
            with written_whole(output) as part:
                config = {
                    "model_path": [str(checkpoint)],
                    "src": str(self.folder / f"{split}.src"),
                    "output": str(part),
                    "beam_size": 5,
                    "batch_type": "sents",
                    "batch_size": 64,
                    "world_size": 0,
                    "gpu_ranks": [],
                    "compute_dtype": "fp32",
                }
                self._call("predict", "-config", self._yaml(f"predict_{name}", config))
        rows = [line.split() for line in output.read_text(encoding="utf-8").splitlines()]
        ids = [[self.ids.get(piece, UNK) for piece in row] for row in rows]
        return self.text.tokenizer.decode_target(ids)

    def _yaml(self, name: str, config: dict[str, Any]) -> str:
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
        return str(file)

    def _call(self, *arguments: str) -> None:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([str(self.command), *arguments], env=environment, check=False)
        if done.returncode:
            raise SystemExit(f"eole {arguments[0]}: exit code {done.returncode}")

    def parameters(self) -> int:
        """Numbers in the weights of a checkpoint; shared ones count once, constants not."""
        from safetensors import safe_open

        (checkpoint, *_) = self.checkpoints().values()
        sizes = {}
        for file in checkpoint.glob("*.safetensors"):
            with safe_open(file, "pt") as weights:
                for name in weights.keys():  # noqa: SIM118
                    # Sinusoids, and ones that nothing trains.
                    if name.endswith((".pe.pe", ".layer_scalar")):
                        continue
                    sizes[name] = weights.get_slice(name).get_shape()
        return sum(_product(shape) for shape in sizes.values())


def _product(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def main(arguments: Sequence[str]) -> None:
    """Train, validate, test, and write the outcome."""
    folder = Path(arguments[0])
    own, ours = own_and_ours(arguments[1:], "eole")
    python = Path(own.pop("python", ""))
    if not (python.parent / "eole").is_file():
        raise SystemExit(
            "eole.python= must be the Python of an environment with Eole: python3 -m venv E; "
            "E/bin/pip install eole aiohttp; eole.python=E/bin/python"
        )
    folder.mkdir(parents=True, exist_ok=True)
    text = Text(ours)
    eole = Eole(folder, text, python, {key: yaml.safe_load(value) for key, value in own.items()})
    eole.train()
    validations = [
        (updates, round(text.bleu(eole.translate(checkpoint, "validation", f"step_{updates}")), 2))
        for updates, checkpoint in sorted(eole.checkpoints().items())
    ]
    print(json.dumps(validations), flush=True)
    best, _ = max(validations, key=lambda validation: validation[1])
    hypotheses = eole.translate(eole.checkpoints()[best], "test", "test")
    scores, signatures = text.scores(hypotheses, "test")
    write_outcome(folder, Outcome(validations, eole.parameters(), scores, signatures))


if __name__ == "__main__":
    main(sys.argv[1:])
