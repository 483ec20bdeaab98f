"""A report in words: what a reader should know before any table."""

from collections.abc import Iterator
from typing import Any

from transformer.evaluation.significance import SURE

Values = dict[str, Any]


def summary(values: Values) -> list[str]:
    """Short sentences: the score, how the run ended, whether more training may help, failures."""
    tests, runs = values["tests"], values["runs"]
    found = [line for test in tests[:1] for line in _scores(test, values["letters"])]
    if len(runs) > 1:
        return found if tests else ["The runs have no test in common."]
    return [*found, *_training(runs[0], bool(tests)), *_failures(runs[0]["failures"])]


def _scores(test: Values, letters: list[str]) -> Iterator[str]:
    """Of one run its first metric; of several each metric of each run but the first."""
    if test["comparison"] is None:
        first = test["scores"][0][0]
        if len(letters) == 1:
            yield f"On {test['name']}, {first['name']} is {first['score']}."
        return
    count, metrics = test["comparison"]["sentences"], test["comparison"]["metrics"]
    if len(letters) == 1:
        one = metrics[0]["systems"][0]
        low, high = (one["mean"] + sign * one["interval"] for sign in (-1, 1))
        yield (
            f"On {test['name']} ({count:,} sentences), {metrics[0]['name']} is {one['score']:.2f}; "
            f"with 95 % confidence it is between {low:.2f} and {high:.2f}."
        )
    for metric in metrics:
        for letter, one in zip(letters[1:], metric["systems"][1:], strict=True):
            better = (one["difference"] > 0) == (metric["better"] == "higher")
            verdict = f"{'better' if better else 'worse'} than A, by more than chance"
            if (p := max(one["p_bootstrap"], one["p_randomization"])) >= SURE:
                verdict = "not surely another than that of A"
            yield (
                f"{metric['name']} of {letter} is {one['score']:.2f} ({one['difference']:+.2f}): "
                f"{verdict} (p = {p:.3f}, the larger of two paired tests)."
            )


def _training(run: Values, tested: bool) -> Iterator[str]:
    found, starts = run["validation"], run["starts"]
    if not tested and found:
        best = f"{found['best']:.4g}, at update {found['best_update']:,}"
        yield f"No test is scored; the best {found['metric']} is {best}."
    ends = {"finished": "is finished", "stopped": "was stopped", "training": "is still training"}
    reason = starts[-1].get("reason") if starts and run["state"] != "training" else None
    yield f"The run {ends[run['state']]}{f': {reason}' if reason else ''}."
    if found is None or found["count"] < 3:
        return
    if found["best_update"] == found["last_update"]:
        yield f"{found['metric']} was best at the last validation: more updates may help."
    elif (lowest := found["lowest_loss_update"]) and lowest < found["best_update"]:
        yield (
            f"val/loss was lowest at update {lowest:,}, before the chosen checkpoint: the model "
            "begins to learn the training text by heart."
        )


def _failures(failures: Values | None) -> Iterator[str]:
    if failures:
        lines = {line for one in failures["flags"].values() for line in one["lines"]}
        rate = 100 * len(lines) / max(failures["sentences"], 1)
        yield f"{rate:.1f} % of the outputs have a flag of a failure."
