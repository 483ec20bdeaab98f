"""How the tests compare text where they do not test that."""

from transformer.settings.metrics import MetricsConfig

RAW = MetricsConfig(tokenize="13a", lowercase=False)
