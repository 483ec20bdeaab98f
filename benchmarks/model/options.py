"""Train every option of the attention family alike, and write the table in options.md.

    python benchmarks/model/options.py [--steps 300] [--only NAME…] [KEY=VALUE…]

Each option is one run of ``train.py`` on pocket: same seed, same batches, same number of updates.
A run that is finished is not repeated, so that the command goes on where it was stopped. Further
``KEY=VALUE`` go to every run; with them, with ``--only`` or with another number of updates, the
rows are printed and the table stays as it is.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.records import write_between
from benchmarks.support.trained import Trained
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.checkpoint.run_directory import is_finished

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_suffix(".md")
STEPS = 300
"""Updates of each run of the table."""
WITH_ADAM = (
    "optimizer=adam",
    "optimizer.lr=4e-3",
    "schedule=cosine",
    "schedule.warmup=300",
    "model.positions=sinusoidal",
    "model.query_key_norm=false",
)
"""Pocket before it had Muon, rotary positions and norms of heads, as all rows were trained."""


@dataclass(frozen=True)
class Option:
    """What is changed in the tiny model, and where it was published."""

    overrides: str
    paper: str

    @property
    def name(self) -> str:
        """As a folder is called."""
        words = self.overrides.replace("model.", "").replace("=", "-").split()
        return "_".join(words) or "default"


LONGER = "trainer.max_steps=900 trainer.val_check_interval=900"

OPTIONS = [
    Option("", "Vaswani et al. 2017, pre-norm of Xiong et al. 2020"),
    Option("seed=2", "how much chance does"),
    Option("seed=3", "likewise"),
    Option("model.attention=eager", "Vaswani et al. 2017, equation 1"),
    Option("model.attention=flex", "Dong et al. 2024; Zaheer et al. 2020"),
    Option("model.num_heads=1", "Vaswani et al. 2017, table 3 (A)"),
    Option("model.pattern=sliding model.window=3", "Beltagy et al. 2020"),
    Option("model.pattern=longformer model.window=3", "Beltagy et al. 2020"),
    Option("model.pattern=bigbird model.window=2 model.random_block_size=2", "Zaheer et al. 2020"),
    Option("model.num_kv_heads=2", "Ainslie et al. 2023"),
    Option("model.num_kv_heads=1", "Shazeer 2019"),
    Option("model.head_dim=64", "Bhojanapalli et al. 2020"),
    Option("model.query_key_norm=true", "Henry et al. 2020"),
    Option("model.positions=learned", "Gehring et al. 2017"),
    Option("model.positions=rotary", "Su et al. 2021"),
    Option("model.positions=alibi", "Press et al. 2022"),
    Option("model.positions=relative", "Raffel et al. 2020"),
    Option("model.norm=rms", "Zhang and Sennrich 2019"),
    Option("model.norm_order=post", "Vaswani et al. 2017"),
    Option(f"model.norm_order=post {LONGER}", "trained for longer"),
    Option("model.norm_order=sandwich", "Ding et al. 2021"),
    Option("model.activation=gelu", "Hendrycks and Gimpel 2016"),
    Option("model.activation=swiglu model.ffn_dim=176", "Shazeer 2020"),
    Option("model.activation=geglu model.ffn_dim=176", "Shazeer 2020"),
    Option("model.share_layers=all", "Lan et al. 2020"),
    Option("model.share_layers=attention", "Lan et al. 2020"),
    Option("model.share_layers=feed_forward", "Lan et al. 2020"),
    Option("model.layer_drop=0.1", "Fan et al. 2020"),
    Option(
        "model.positions=rotary model.norm=rms model.activation=swiglu model.ffn_dim=176 "
        "model.num_kv_heads=2 model.query_key_norm=true",
        "all of Llama's and Qwen's together",
    ),
]


def train(option: Option, folder: Path, steps: int, extra: list[str]) -> None:
    """Train, validate once and test, unless that is done."""
    bounds = [f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps}"]
    changed = option.overrides.split()
    keys = {override.partition("=")[0] for override in changed}
    plain = (override for override in WITH_ADAM if override.partition("=")[0] not in keys)
    run = Trained((*bounds, *plain, *changed, *extra), folder)
    run.check()
    if is_finished(folder):
        return
    command = [sys.executable, *run.call]
    print(f"{option.name} …", file=sys.stderr, flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{option.name}:\n{done.stderr}")


def row(option: Option, folder: Path) -> str:
    """A line of the table."""
    model = load_checkpoint(folder).model
    parameters = sum(parameter.numel() for parameter in model.parameters())
    scores = {
        split: next(s["score"] for s in json.loads(file.read_text()) if s["name"] == "BLEU")
        for split in ("test", "test_novel")
        if (file := folder / f"{split}.json").exists()
    }
    changed = " ".join(f"`{override}`" for override in option.overrides.split()) or "(the default)"
    return (
        f"| {changed} | {option.paper} | {parameters / 1e6:.2f} M "
        f"| {scores['test']:.1f} | {scores['test_novel']:.1f} |"
    )


def main() -> None:
    """Train what is missing; write the table if it is the whole one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    names = [option.name for option in OPTIONS]
    parser.add_argument("--only", nargs="*", choices=names, metavar="NAME", default=names)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "options")
    arguments, extra = parser.parse_known_args()
    lines = [
        "| option | paper | parameters | test | test_novel |",
        "| --- | --- | --- | --- | --- |",
    ]
    suffix = "".join(f"_{key}".replace("=", "-") for key in extra)
    for option in OPTIONS:
        if option.name in arguments.only:
            folder = arguments.folder.resolve() / f"{option.name}-{arguments.steps}{suffix}"
            train(option, folder, arguments.steps, extra)
            lines.append(row(option, folder))
            print(lines[-1], flush=True)
    if arguments.only == names and arguments.steps == STEPS and not extra:
        write_between(PAGE, "options", lines)


if __name__ == "__main__":
    main()
