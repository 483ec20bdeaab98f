"""A report in words: what a reader should know before any table."""

from collections.abc import Iterator
from typing import Any

from transformer.evaluation.significance import SURE

Values = dict[str, Any]


def summary(values: Values) -> list[str]:
    """Short sentences: the score, how the run ended, whether more training may help, failures."""
    tests = values["tests"]
    runs = values["runs"]
    lines = [line for test in tests[:1] for line in _scores(test, values["letters"])]
    if len(runs) > 1:
        return lines if tests else ["The runs have no test in common."]
    return [*lines, *_training(runs[0], bool(tests)), *_failures(runs[0]["failures"])]


def _scores(test: Values, letters: list[str]) -> Iterator[str]:
    """Of one run its first metric; of several each metric of each run but the first."""
    if test["comparison"] is None:
        first = test["scores"][0][0]
        if len(letters) == 1:
            yield f"On {test['name']}, {first['name']} is {first['score']}."
        return
    count = test["comparison"]["sentences"]
    metrics = test["comparison"]["metrics"]
    if len(letters) == 1:
        system = metrics[0]["systems"][0]
        low, high = (system["mean"] + sign * system["interval"] for sign in (-1, 1))
        yield (
            f"On {test['name']} ({count:,} sentences), {metrics[0]['name']} is "
            f"{system['score']:.2f}; "
            f"with 95 % confidence it is between {low:.2f} and {high:.2f}."
        )
    for metric in metrics:
        for letter, system in zip(letters[1:], metric["systems"][1:], strict=True):
            better = (system["difference"] > 0) == (metric["better"] == "higher")
            verdict = f"{'better' if better else 'worse'} than A, by more than chance"
            p = max(system["p_bootstrap"], system["p_randomization"])
            if p >= SURE:
                verdict = "not surely another than that of A"
            yield (
                f"{metric['name']} of {letter} is {system['score']:.2f} "
                f"({system['difference']:+.2f}): "
                f"{verdict} (p = {p:.3f}, the larger of two paired tests)."
            )


def _training(run: Values, tested: bool) -> Iterator[str]:
    validation = run["validation"]
    starts = run["starts"]
    if not tested and validation:
        best = f"{validation['best']:.4g}, at update {validation['best_update']:,}"
        yield f"No test is scored; the best {validation['metric']} is {best}."
    ends = {"finished": "is finished", "stopped": "was stopped", "training": "is still training"}
    reason = starts[-1].get("reason") if starts and run["state"] != "training" else None
    yield f"The run {ends[run['state']]}{f': {reason}' if reason else ''}."
    if validation is None or validation["count"] < 3:
        return
    lowest = validation["lowest_loss_update"]
    if validation["best_update"] == validation["last_update"]:
        yield f"{validation['metric']} was best at the last validation: more updates may help."
    elif lowest is not None and lowest < validation["best_update"]:
        yield (
            f"val/loss was lowest at update {lowest:,}, before the chosen checkpoint: the model "
            "begins to learn the training text by heart."
        )


def _failures(failures: Values | None) -> Iterator[str]:
    if failures:
        lines = {line for flag in failures["flags"].values() for line in flag["lines"]}
        rate = 100 * len(lines) / max(failures["sentences"], 1)
        yield f"{rate:.1f} % of the outputs have a flag of a failure."
