"""A report in words: what a reader should know before any table."""

from collections.abc import Iterator
from typing import Any

Values = dict[str, Any]


def summary(values: Values) -> list[str]:
    """Short sentences: the score, how the run ended, whether more training may help, failures."""
    return [*_score(values), *_training(values), *_failures(values)]


def _score(values: Values) -> Iterator[str]:
    tests, validation = values["tests"], values["validation"]
    for test in tests[:1]:
        score = test["scores"][0]
        count = f" ({test['sentences']['total']:,} sentences)" if test["sentences"] else ""
        sure = ""
        if "low" in score:
            sure = f", with 95 % confidence between {score['low']:.2f} and {score['high']:.2f}"
        yield f"On {test['name']}{count}, {score['name']} is {score['score']}{sure}."
    if not tests and validation:
        name, best = validation["metric"], validation["best"]
        yield f"No test is scored yet; the best {name} is {best:.4g}, at update {validation['best_update']:,}."


def _training(values: Values) -> Iterator[str]:
    reason = values["starts"][-1].get("reason") if values["starts"] else None
    ended = {
        "finished": "The run is finished",
        "stopped": "The run was stopped before its end",
        "training": "The run is still training",
    }[values["state"]]
    yield f"{ended}{f': {reason}' if reason and values['state'] != 'training' else ''}."
    validation = values["validation"]
    if validation is None or validation["validations"] < 3:
        return
    if validation["best_update"] == validation["last_update"]:
        yield f"{validation['metric']} was best at the last validation: more updates may help."
    elif (lowest := validation["lowest_loss_update"]) and lowest < validation["best_update"]:
        yield (
            f"val/loss was lowest at update {lowest:,}, before the chosen checkpoint of update "
            f"{validation['best_update']:,}: the model begins to learn the training text by heart."
        )


def _failures(values: Values) -> Iterator[str]:
    for test in values["tests"][:1]:
        if failures := test["failures"]:
            lines = {line for one in failures["flags"].values() for line in one["lines"]}
            rate = 100 * len(lines) / max(failures["sentences"], 1)
            yield f"{rate:.1f} % of the outputs on {test['name']} carry a flag of a failure."
