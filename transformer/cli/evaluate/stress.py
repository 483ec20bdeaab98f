"""``stress``: score a translator on a disturbed test set; a table, and ``stress.json``."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from transformer.checkpoint.locate import run_folder
from transformer.cli import translator as described
from transformer.cli.config.compose import checkpoint_paths, resolve_positive, resolve_value
from transformer.cli.evaluate import scored_text
from transformer.common.errors import InputError, did_you_mean
from transformer.data.text_noise.catalog import DISTURBANCES
from transformer.evaluation.metrics import build_metric
from transformer.quality.failures.flags import Detector
from transformer.quality.stress import StressReport, StressTest, sample_size
from transformer.report.scores import build_table, require_writable, write_whole

SECONDS = 120.0
"""Of a test without ``sentences=``, about."""


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Print the table, and write ``stress.json`` to the run directory or ``output=``."""
    names = resolve_value(config, "disturbances", Sequence[str] | None) or tuple(DISTURBANCES)
    for name in names:
        if name not in DISTURBANCES:
            near = did_you_mean(name, DISTURBANCES) or f"; choose {', '.join(DISTURBANCES)}"
            raise InputError(f"disturbances has {name!r}, which is none{near}")
    task, translates = scored_text.checkpoint_kind(config)
    if not translates:
        raise InputError(f"stress disturbs text to text; the checkpoint is of task={task}")
    translator, trained = described.load(config, arguments)
    metrics = scored_text.resolve_metrics(config, trained)
    metric = resolve_value(config, "metric", str | None) or metrics.choose
    build_metric(metric, metrics)
    split = scored_text.own_text(config, trained) or scored_text.scored_split(config, trained)
    pairs = scored_text.pairs_to_score(split)
    if config.sentences == "auto":
        size = sample_size(translator, [pair[0] for pair in pairs], len(names) + 1, SECONDS)
        if size < len(pairs):
            sample = f"the first {size:,} of {len(pairs):,} sentences, about two minutes"
            _say(f"{sample}; sentences=null takes all, sentences=N others")
        pairs = pairs[:size]
    elif config.sentences is not None:
        pairs = pairs[: resolve_positive(config, "sentences")]
    path = checkpoint_paths(config)[0]
    output = scored_text.writable_output(config)
    if output is None:
        output = run_folder(path)
        require_writable(output)
    seed = resolve_positive(config, "seed", 0)
    detector = Detector.load(path, trained.data)
    test = StressTest(translator, detector, pairs, metrics, metric, seed)
    progress = (f"{number}/{len(names)} {name}" for number, name in enumerate(names, 1))
    report = test.run(names, lambda _: _say(next(progress)))
    Console(width=10_000, soft_wrap=True).print(stress_table(scored_text.text_name(config), report))
    save_stress(output, report)


def _say(text: str) -> None:
    print(f"stress: {text}", file=sys.stderr, flush=True)


def stress_table(name: str, report: StressReport) -> Text:
    """A line for each disturbance: score, loss, outputs and the most frequent flags."""
    columns = ("disturbance", "inputs", report.metric, "loss", "same output", "chrF to clean")
    clean = ("none", str(report.sentences), f"{report.clean:.2f}", *[""] * 3)
    rows: list[Sequence[str]] = [(*clean, _most_frequent(report.clean_failures))]
    for one in report.disturbances:
        numbers = (one.score, one.loss, one.unchanged, one.agreement)
        cells = ("-" if number is None else f"{number:.2f}" for number in numbers)
        rows.append((one.name, str(one.inputs), *cells, _most_frequent(one.failures)))
    title = f"{name} disturbed, {report.signature}"
    return build_table(title, (*columns, "flags"), rows, right=range(1, 6))


def _most_frequent(failures: Mapping[str, int]) -> str:
    flags = sorted(failures.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{flag} {count}" for flag, count in flags if count)


def save_stress(folder: Path | None, report: StressReport) -> None:
    """Write ``stress.json`` to a folder; None writes nothing."""
    if folder is not None:
        write_whole(folder / "stress.json", json.dumps(report.to_json(), indent=1) + "\n")
