"""Metrics and trust of commands whose keys are no dataclass yet."""

from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_value
from transformer.common.schema import typed
from transformer.data.corpora.trust import require_trust
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig


def require_trusted(config: DictConfig, run: RunConfig) -> None:
    """Refuse text outside of the working folder that a checkpoint names, without ``trust=true``."""
    trusted = resolve_value(config, "trust", bool, False)
    given = {f"metrics.{key}": value for key, value in _given_metrics(config).items()}
    require_trust(run, trusted, config.get("checkpoint", "a run"), given)


def resolve_metrics(config: DictConfig, run: RunConfig | None) -> MetricsConfig:
    """The run's own, and raw text's without a run; ``tokenize=`` and the like change it."""
    metrics = MetricsConfig() if run is None else run.metrics
    require_trusted(config, RunConfig(metrics=metrics))
    return typed(MetricsConfig, {**asdict(metrics), **_given_metrics(config)}, "metrics")


def _given_metrics(config: DictConfig) -> dict[str, Any]:
    keys = ("tokenize", "lowercase", "custom", "custom_better", "comet")
    return {key: config[key] for key in keys if config.get(key) is not None}
