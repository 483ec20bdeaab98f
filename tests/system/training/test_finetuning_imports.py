"""Imported models of sound and pictures learn: whole, and by adapters."""

import json
from pathlib import Path

import pytest
import torch

from tests.helpers.interchange.architecture_folders import whisper_folder
from tests.helpers.sounds import sound_files
from transformer.__main__ import main
from transformer.decoding.translator import Translator

SHORT = [
    "experiment=finetune",
    "data=files",
    "data.test_size=0",
    "data.batch_tokens=400",
    "optimizer.lr=0.01",
    "schedule.warmup=1",
    "loss.label_smoothing=0",
    "trainer.max_steps=30",
    "trainer.val_check_interval=30",
    "trainer.precision=32-true",
    "logger.tensorboard=false",
    "data.validation=v.tsv",
    "data.train=t.tsv",
]


@pytest.mark.thorough
@pytest.mark.parametrize("rank", [0, 2])
def test_whisper_learns_to_write_down_sounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    monkeypatch.chdir(tmp_path)
    whisper_folder(Path("there"))
    assert main(["import", "checkpoint=there", "output=first", "languages=de-en"]) == 0
    files = sound_files(tmp_path / "sounds", 6)
    texts = ["A dog.", "The house sleeps.", "Yes."] * 2
    pairs = [f"{file}\t{text}\n" for file, text in zip(files, texts, strict=True)]
    Path("t.tsv").write_text("".join(pairs[:3] * 4))
    Path("v.tsv").write_text("".join(pairs))
    call = ["train", "finetune_from=first", "data.source=de", "data.target=en", *SHORT]
    assert (
        main([*call, "data.deduplicate=false", f"model.lora_rank={rank}", "hydra.run.dir=run"]) == 0
    )
    before, after = Translator.load("first"), Translator.load("run")
    assert after.tokenizer.tags == before.tokenizer.tags
    old, new = before.model.state_dict(), after.model.state_dict()
    assert old.keys() == new.keys()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    front_end = "source_embedding.front_end.first.weight"
    assert (front_end in changed) == (rank == 0)
    assert "decoder.layers.0.self_attention.query.weight" in changed
    capsys.readouterr()
    Path("input").write_text("\n".join(files[:3]) + "\n")
    call = ["translate", "from=de", "to=en", "input=input", "format=json", "timestamps=true"]
    losses = []
    for run in ("first", "run"):
        Path("target").write_text("\n".join(texts[:3]) + "\n")
        score = ["score", f"checkpoint={run}", "source=input", "target=target"]
        assert main([*score, "from=de", "to=en"]) == 0
        losses.append(-sum(map(float, capsys.readouterr().out.split())))
        assert main([*call, f"checkpoint={run}", f"output={run}.jsonl"]) == 0
        rows = map(json.loads, Path(f"{run}.jsonl").read_text().splitlines())
        assert all(
            0 <= piece["start"] <= piece["end"] <= 1.02
            for r in rows
            for piece in r.get("segments", ())
        )
    assert losses[1] < losses[0], losses
