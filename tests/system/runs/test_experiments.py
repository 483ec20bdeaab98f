"""Every experiment trains as it is written, but for its size: ten updates on made-up text.

The experiment of pocket, which all else is tested with, has its own tests.
"""

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from tests.helpers.data.text import write_parallel
from tests.helpers.runs.runs import PROJECT, composed
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import portable_part, read_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.cli.config import compose_config, run_settings
from transformer.data.corpora.catalog import PUBLISHED
from transformer.data.corpora.resolve import find_splits
from transformer.model.build import build_transformer
from transformer.runs.train import train

SIZES = {"train": 60, "validation": 4, "test": 4}

SMALL = [
    *("model.d_model=16", "model.ffn_dim=16", "model.num_heads=2"),
    *("model.encoder_layers=1", "model.decoder_layers=1"),
    *("tokenizer.vocab_size=300", "data.batch_tokens=200", "data.prepare_workers=0"),
    *("trainer.accelerator=cpu", "trainer.max_steps=10", "logger.tensorboard=false"),
    *("decoding.max_length_ratio=0", "decoding.max_length_offset=3"),
]

TRANSLATED = ("multi30k", "multi30k_tok", "tanaka_enja")


def write_corpus(folder: Path, name: str, source: str, target: str) -> Path:
    """Write the two sides of each split under the names that they have in this corpus."""
    folder.mkdir()
    for seed, (split, count) in enumerate(SIZES.items()):
        paths = write_parallel(folder, split, count, seed, lambda phrase: [*phrase[::-1], "."])
        for path, code in zip(paths, (source, target), strict=True):
            text = Path(path).read_bytes()
            Path(path).unlink()
            if name in TRANSLATED:
                file = folder / PUBLISHED[name].file_name(code, split)
            else:
                file = folder / f"{split}.{code}"
            file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return folder


def ten_updates(folder: Path, experiment: str, *overrides: str) -> str:
    """Train and test; return the signature of the first score, BLEU."""
    data = compose_config("train", [f"experiment={experiment}", *overrides]).data
    root = write_corpus(folder / "corpus", data.corpus, data.source, data.target)
    given = [f"experiment={experiment}", f"data.root={root}", *SMALL, *overrides]
    config = composed(given, folder / "cache")
    metrics = train(config, folder / "run")
    assert metrics["val/loss"] < float("inf")
    payload = read_payload(find_checkpoint(folder / "run", "last"))
    assert payload["global_step"] == 10
    assert portable_part(payload).config.metrics == config.metrics
    scores = json.loads((folder / "run" / "test.json").read_text())
    assert scores[0]["name"] == "BLEU"
    signature: str = scores[0]["signature"]
    return signature


@pytest.mark.parametrize(
    ("experiment", "source", "target", "tokenize"),
    [
        ("multi30k_tiny", "de", "en", "13a"),
        ("multi30k_tok", "en", "de", "none"),
        ("tanaka_enja", "ja", "en", "none"),
        ("wmt14_ende_base", "en", "de", "13a"),
        ("iwslt14_deen", "de", "en", "none"),
    ],
)
@pytest.mark.thorough
def test_ten_updates(
    experiment: str,
    source: str,
    target: str,
    tokenize: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    languages = [f"data.source={source}", f"data.target={target}"]
    bleu = ten_updates(tmp_path, experiment, *languages)
    assert f"|tok:{tokenize}|" in bleu
    # As the run is scored, unless the call says otherwise.
    run = f"checkpoint={tmp_path / 'run'}"
    assert main(["evaluate", run, "decoding=greedy", "decoding.max_length_offset=1"]) == 0
    assert f"|tok:{tokenize}|" in capsys.readouterr().out
    if experiment == "tanaka_enja":
        assert main(["evaluate", run, "decoding=greedy", "tokenize=char", "lowercase=true"]) == 0
        assert "|case:lc|eff:no|tok:char|" in capsys.readouterr().out


@pytest.mark.parametrize("direction", ["en-de", "de-en", "en-fr", "fr-en"])
def test_the_directions_of_multi30k(direction: str, tmp_path: Path) -> None:
    source, target = direction.split("-")
    root = write_corpus(tmp_path / "corpus", "multi30k", source, target)
    given = [f"data.source={source}", f"data.target={target}", f"data.root={root}"]
    splits = find_splits(composed(["experiment=multi30k_tiny", *given], tmp_path).data)
    assert {name: len(list(split)) for name, split in splits.items()} == SIZES
    for split in splits.values():
        assert all(other.split()[:-1] == one.split()[::-1] for one, other in split)


def test_the_base_model_has_the_published_size() -> None:
    """65 million parameters: Vaswani et al. 2017, table 3."""
    run = run_settings(compose_config("train", ["experiment=wmt14_ende_base"]))
    size = run.tokenizer.vocab_size
    assert size is not None
    with torch.device("meta"):
        built = build_transformer(run.model.sized(size, size))
    assert 62e6 < sum(parameter.numel() for parameter in built.parameters()) < 66e6
    update = run.data.budget * run.trainer.accumulate_grad_batches
    assert (update, run.trainer.devices) == (25_000, 1)


PROGRAMS = {
    # Writes what mtdata does, in the order of its arguments.
    "mtdata": """
echo "$PYTHONHASHSEED $*" >>calls
mkdir -p corpus/mtdata
for side in eng deu; do
    for split in train dev; do echo "$split $side" >corpus/mtdata/$split.$side; done
done
""",
    "sacrebleu": 'echo "test $6"',
}


def test_the_script_makes_the_folder_that_wmt14_reads(tmp_path: Path) -> None:
    def call(*arguments: str, **environment: str) -> tuple[int, str]:
        script = PROJECT / "scripts" / "wmt14_ende.sh"
        done = subprocess.run(
            ["sh", str(script), *arguments],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin", **environment},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr

    assert call() == (2, "error: give the folder to make: sh scripts/wmt14_ende.sh FOLDER\n")
    assert call("corpus")[0] == 2
    for name, body in {**PROGRAMS, "mtdata": "exit 3"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    assert call("corpus")[0] == 3
    assert not list((tmp_path / "corpus").iterdir())
    (tmp_path / "mtdata").write_text(f"#!/bin/sh\n{PROGRAMS['mtdata']}")
    assert call("corpus") == (0, "")
    assert call("corpus") == (0, "corpus is there\n")
    (asked,) = (tmp_path / "calls").read_text().splitlines()
    assert asked.startswith("0 get --langs eng-deu --merge --out corpus/mtdata --train Statmt-eu")
    config = composed(["experiment=wmt14_ende_base", f"data.root={tmp_path / 'corpus'}"], tmp_path)
    assert {name: list(split) for name, split in find_splits(config.data).items()} == {
        "train": [("train eng", "train deu")],
        "validation": [("dev eng", "dev deu")],
        "test": [("test src", "test ref")],
    }
