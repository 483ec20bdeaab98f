"""``stress``: score a translator on a disturbed test set; a table, and ``stress.json``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig
from rich.console import Console

from transformer.cli.config.compose import resolve_path, resolve_positive, resolve_value
from transformer.cli.evaluate import scored_text
from transformer.cli.load import checkpoint_paths, load_translator
from transformer.common.errors import InputError, did_you_mean
from transformer.data.disturbance.catalog import DISTURBANCES
from transformer.data.text.parallel import Referenced
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.failures.flags import Detector
from transformer.evaluation.metrics import MetricsConfig, build_metric
from transformer.evaluation.stress import StressReport, StressTest
from transformer.model.checkpoint.checkpoint import checkpoint_task, read_payload
from transformer.model.checkpoint.locate import find_checkpoint, is_exported, run_folder
from transformer.report.scores import require_writable
from transformer.report.stress import save_stress, stress_table


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Print the table, and write ``stress.json`` to the run directory or ``output=``."""
    names = _disturbances(config)
    _require_translation(config)
    translator, trained = load_translator(config, arguments)
    metrics = scored_text.resolve_metrics(config, trained)
    metric = resolve_value(config, "metric", str | None) or metrics.choose
    build_metric(metric, metrics)
    split = scored_text.own_text(config, trained) or scored_text.scored_split(config, trained)
    pairs = scored_text.pairs_to_score(split)
    if config.sentences is not None:
        pairs = pairs[: resolve_positive(config, "sentences")]
    output = scored_text.writable_output(config)
    if output is None:
        output = run_folder(checkpoint_paths(config.checkpoint)[0])
        require_writable(output)
    seed = resolve_positive(config, "seed", 0)
    report = stressed(config, translator, trained, pairs, (metrics, metric), names, seed)
    Console(width=10_000, soft_wrap=True).print(stress_table(scored_text.text_name(config), report))
    save_stress(output, report)


def stressed(
    config: DictConfig,
    translator: Translator,
    trained: Mapping[str, Any],
    pairs: Sequence[Referenced],
    measure: tuple[MetricsConfig, str],
    names: Sequence[str] = tuple(DISTURBANCES),
    seed: int = 1,
) -> StressReport:
    """Disturb pairs, of which blank ones separate documents; each sentence is translated alone."""
    detector = Detector.load(checkpoint_paths(config.checkpoint)[0], trained["data"])
    texts = [(source, targets) for source, targets in pairs if source.strip()]
    if not texts:
        raise InputError("all sources are blank; give another text")
    return StressTest(translator, detector, texts, *measure, seed).run(names)


def _disturbances(config: DictConfig) -> Sequence[str]:
    names = resolve_value(config, "disturbances", Sequence[str] | None)
    for name in names or ():
        if name not in DISTURBANCES:
            near = did_you_mean(name, DISTURBANCES) or f"; choose {', '.join(DISTURBANCES)}"
            raise InputError(f"disturbances has {name!r}, which is none{near}")
    return names or tuple(DISTURBANCES)


def _require_translation(config: DictConfig) -> None:
    path: Path = resolve_path(config, "checkpoint")
    if isinstance(config.checkpoint, ListConfig) or is_exported(path):
        return
    if (task := checkpoint_task(read_payload(find_checkpoint(path)))) != "translation":
        from transformer.tasks.registry import is_translation

        if ":" not in task or not is_translation(task):
            raise InputError(f"stress disturbs text to text; the checkpoint is of task={task}")
