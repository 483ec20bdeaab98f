"""The experiment of WMT 2014: the size of its model, and the script that makes its text."""

import os
import subprocess
from pathlib import Path

import torch

from tests.helpers.runs.runs import PROJECT, composed
from transformer.cli.config import compose_config, run_settings
from transformer.data.corpora.resolve import find_splits
from transformer.model.build import build_transformer


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


MTDATA = """#!/bin/sh
echo "$PYTHONHASHSEED $*" >>calls
mkdir -p corpus/mtdata
for side in eng deu; do
    for split in train dev; do echo "$split $side" >corpus/mtdata/$split.$side; done
done
"""


def test_the_script_makes_the_folder_that_wmt14_reads(tmp_path: Path) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        ended = subprocess.run(
            ["sh", str(PROJECT / "scripts" / "wmt14_ende.sh"), *arguments],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin"},
            capture_output=True,
            text=True,
        )
        return ended.returncode, ended.stderr

    assert call()[0] == call("corpus")[0] == 2
    for name in ("mtdata", "sacrebleu"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "sacrebleu").write_text('#!/bin/sh\necho "test $6"\n')
    (tmp_path / "mtdata").write_text("#!/bin/sh\nexit 3\n")
    assert call("corpus")[0] == 3
    assert not list((tmp_path / "corpus").iterdir())
    (tmp_path / "mtdata").write_text(MTDATA)
    assert call("corpus") == (0, "")
    assert call("corpus") == (0, "corpus is there\n")
    (arguments,) = (tmp_path / "calls").read_text().splitlines()
    assert arguments.startswith("0 get --langs eng-deu --merge --out corpus/mtdata --train Statmt-")
    config = composed(["experiment=wmt14_ende_base", f"data.root={tmp_path / 'corpus'}"], tmp_path)
    assert {name: list(split) for name, split in find_splits(config.data).items()} == {
        "train": [("train eng", "train deu")],
        "validation": [("dev eng", "dev deu")],
        "test": [("test src", "test ref")],
    }
