"""BLEU on new and on old text after fine-tuning: plain, mixed, LoRA, frozen encoder.

    python benchmarks/training/forgetting.py --output FOLDER --updates 500 \\
        --text captions RUN corpus:multi30k,root:CORPUS --text pocket RUN corpus:pocket

Each text has a name, a run that was trained on it, and its entry of ``data.corpora``. Each run is
tuned on the text of the other in every way, with ``experiment=finetune`` and what ``--set`` adds,
for so many updates, and the best checkpoint by the validation of its training is scored on the
validation text of both. No test text is read. A variant that is finished is not made again, and one
that was stopped goes on. stdout gets the table in Markdown.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from transformer.cli.config import compose_config, run_settings
from transformer.data.datamodules.translation import TranslationData
from transformer.decoding.translator import Translator
from transformer.evaluation.metrics import score
from transformer.settings.run import RunConfig

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = {
    "plain": (),
    "mixed": (),
    "lora": ("model.lora_rank=8", "optimizer.lr=3e-3"),
    "frozen_encoder": ("model.freeze=[embeddings,encoder]",),
}
"""With their settings; ``mixed`` learns from both texts, a batch of each in turn."""
COLUMNS = ("old text", "new text", "variant", "BLEU new", "BLEU old", "minutes")


class Subject(NamedTuple):
    """A text, and a run that was trained on it."""

    name: str
    run: str
    corpus: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--text", nargs=3, action="append", required=True)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--set", nargs="*", default=[], help="more KEY=VALUE of train.py")
    given = parser.parse_args(arguments)
    one, other = (Subject(*text) for text in given.text)
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    signatures = set()
    for old, new in ((one, other), (other, one)):
        for variant in ("before", *given.only):
            found = measured(given.output, old, new, variant, given.updates, given.set)
            signatures.add(found["signature"])
            scores = f"{found['new']:.2f} | {found['old']:.2f} | {found['minutes']:.1f}"
            print(f"| {old.name} | {new.name} | {variant} | {scores} |", flush=True)
    print(f"\nBLEU of the validation texts: `{'`, `'.join(sorted(signatures))}`")


def measured(
    output: Path, old: Subject, new: Subject, variant: str, updates: int, more: Sequence[str]
) -> dict[str, Any]:
    """The scores of a variant, read from its file or made."""
    folder = output.absolute() / f"{old.name}_to_{new.name}" / f"{variant}_{updates}"
    file = folder.with_suffix(".json")
    settings = [*training(old, new, variant, updates), *more]
    if not file.exists():
        minutes = 0.0
        if variant != "before":
            train = [sys.executable, str(ROOT / "train.py"), *settings, f"hydra.run.dir={folder}"]
            start = time.monotonic()
            subprocess.run([*train, "checkpoint=auto"], check=True, stdout=sys.stderr)
            minutes = (time.monotonic() - start) / 60
        checkpoint = old.run if variant == "before" else str(folder)
        result = {"minutes": minutes, **scores(checkpoint, old, new, more), "settings": settings}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if variant != "before" and found["settings"] != settings:
        raise SystemExit(f"{file} is of other settings; take it and {folder} away, or --output")
    return found


def training(old: Subject, new: Subject, variant: str, updates: int) -> list[str]:
    """The settings of the training of a variant."""
    interval = max(1, updates // 5)
    bounds = [f"trainer.max_steps={updates}", f"trainer.val_check_interval={interval}"]
    return [
        "experiment=finetune",
        f"finetune_from={Path(old.run).absolute()}",
        "test=false",
        *bounds,
        "callbacks.patience=null",
        *VARIANTS.get(variant, ()),
        *corpora(old, new, both=variant == "mixed"),
    ]


def corpora(old: Subject, new: Subject, *, both: bool) -> list[str]:
    """Settings of the text: the new alone, or both in turns."""
    entries = [f"new:{{{new.corpus},weight:1}}", *([f"old:{{{old.corpus},weight:1}}"] * both)]
    own = ["data=files", "data.source=en", "data.target=de"]
    return [*own, f"data.corpora={{{','.join(entries)}}}"]


def scores(checkpoint: str, old: Subject, new: Subject, more: Sequence[str]) -> dict[str, Any]:
    """BLEU of a run on both validation texts."""
    config = _config((*corpora(old, new, both=True), *more))
    data = TranslationData(config)
    translator = Translator.load(checkpoint)
    found: dict[str, Any] = {}
    for name in ("new", "old"):
        texts = data.texts(f"validation_{name}")
        hypotheses = [one.text for one in translator.translate(texts.sources)]
        (bleu,) = score(hypotheses, texts.references, ("bleu",), config=config.metrics)
        found |= {name: bleu.value, "signature": bleu.signature}
    return found


@cache
def _config(overrides: tuple[str, ...]) -> RunConfig:
    return run_settings(compose_config("train", overrides))


if __name__ == "__main__":
    main()
