"""Metrics of a run, changed by a command; programs that a run names are only run if trusted."""

import pytest

from transformer.checkpoint.trust import TRUST
from transformer.commands.scored_text import changed_metrics, require_trusted
from transformer.common.errors import InputError
from transformer.settings.evaluation import ScoringKeys
from transformer.settings.metrics import MetricsConfig
from transformer.settings.run import RunConfig

RUN = RunConfig(metrics=MetricsConfig(lowercase=True, choose="chrf"))
FOREIGN = RunConfig(metrics=MetricsConfig(custom="os:getcwd"))


def test_named_keys_alone_change_the_metrics_of_a_run() -> None:
    keys = ScoringKeys(tokenize="char", lowercase=False)
    changed = MetricsConfig(tokenize="char", lowercase=False, choose="chrf")
    assert changed_metrics(keys, RUN, "RUN") == changed
    assert changed_metrics(ScoringKeys(), RUN, "RUN") == RUN.metrics
    assert changed_metrics(ScoringKeys(), None, "RUN") == MetricsConfig()
    with pytest.raises(InputError, match="tokenize=words cannot be used"):
        changed_metrics(ScoringKeys(tokenize="words"), RUN, "RUN")


def test_a_program_of_the_run_needs_trust_unless_the_command_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TRUST, raising=False)
    for check in (changed_metrics, require_trusted):
        with pytest.raises(InputError, match=r"^RUN names metrics\.custom=os:getcwd.*trust=true"):
            check(ScoringKeys(), FOREIGN, "RUN")
        check(ScoringKeys(trust=True), FOREIGN, "RUN")
    changed = changed_metrics(ScoringKeys(custom="own:score"), FOREIGN, "RUN")
    assert changed.custom == "own:score"
