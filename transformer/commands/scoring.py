"""What ``evaluate``, ``compare``, ``stress`` and ``tune`` share: the metrics of a run, changed."""

from dataclasses import replace
from typing import Any

from transformer.checkpoint.trust import require_trust
from transformer.settings.evaluation import ScoringKeys
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig


def changed_metrics(keys: ScoringKeys, run: RunConfig | None, checkpoint: object) -> MetricsConfig:
    """The metrics of a run with the changes of a command; without a run, those of raw text.

    Raises InputError for a program that the untrusted ``checkpoint`` names, and for a wrong value.
    """
    metrics = MetricsConfig() if run is None else run.metrics
    require_trusted(keys, RunConfig(metrics=metrics), checkpoint)
    return replace(metrics, **_changes(keys))


def require_trusted(keys: ScoringKeys, run: RunConfig, checkpoint: object) -> None:
    """Raise InputError if the run names code, or text elsewhere, that ``keys`` neither trust nor
    replace; ``checkpoint`` is its name in the message."""
    require_trust(run, keys.trust, checkpoint, {f"metrics.{key}" for key in _changes(keys)})


def _changes(keys: ScoringKeys) -> dict[str, Any]:
    names = ("tokenize", "lowercase", "custom", "custom_better", "comet")
    changes = {name: getattr(keys, name) for name in names}
    return {name: value for name, value in changes.items() if value is not None}
