"""Values of ``report.json`` with one text in every field that a user or a corpus can fill."""

from typing import Any

HOSTILE = "</script><script>document.documentElement.dataset.error='hostile'</script><img src=x>"


def report_values(runs: int, text: str) -> dict[str, Any]:
    """A report of so many runs."""
    letters = [chr(ord("A") + number) for number in range(runs)]
    system = {"score": 1.0, "mean": 1.0, "interval": 0.5}
    system |= {"difference": 0.0, "p_bootstrap": 1.0, "p_randomization": 1.0}
    metric = {"name": text, "better": "higher", "systems": [system] * runs}
    comparison = {
        "sentences": 1,
        "chosen": "bleu",
        "metrics": [metric | {"signatures": {"score": text, "bootstrap": text}}],
        "by_length": {
            "signature": text,
            "buckets": [{"label": text, "sentences": 1, "bleu": [1.0] * runs}],
        },
        "by_frequency": {"buckets": [{"label": text, "words": 1, "matches": [{"f1": 1.0}] * runs}]},
        "sentence_signatures": {"chrf": text},
        "moved": [{"by": text, "better": 1, "worse": 0, "same": 0}] * (runs - 1),
    }
    row = {"line": 1, "score": 1.0, "length": 1, "source": text, "media": None, "flags": [text]}
    row |= {"texts": [[text, "ins", [[text, True], [text, False]]]]}
    test = {"name": text, "scores": [[{"name": text, "score": 1.0, "signature": text}]] * runs}
    return {
        "letters": letters,
        "source_kind": "text",
        "runs": [_run(text)] * runs,
        "tests": [test | {"comparison": comparison, "sentences": [row]}],
        "settings": [{"key": text, "values": [text] * max(runs, 2)}],
        "notes": [text],
        "summary": [text],
    }


def _run(text: str) -> dict[str, Any]:
    start = {"command": text, "started": text, "ended": text, "reason": text, "commit": text}
    flag = {"hypothesis": 1, "reference": 0, "lines": [0]}
    disturbed = {"name": text, "score": 1.0, "loss": 0.5, "unchanged": None}
    stress = {"metric": text, "signature": text, "sentences": 1, "clean": 1.5}
    return {
        **{"name": text, "folder": text, "about": text, "state": "finished", "live": False},
        "validation": {"metric": "val/bleu", "best": 1.0, "best_update": 2},
        "curves": {"train/loss": [(1, 2.0), (2, 1.0)], f"val/{text}": [(2, 1.0)]},
        "parameters": 1000,
        "one_vocabulary": False,
        "vocabulary": {"source": 10, "target": 10},
        "lengths": {"train": [[0, 1, 2], [0, 2, 1]], text: [[0, 1], [0, 1]]},
        "starts": [start | {"hardware": {text: text}, "versions": {text: text}}],
        "log": [text],
        "failures": {"sentences": 1, "flags": {text: flag}},
        "stress": stress | {"disturbances": [disturbed]},
        "seeds": text,
    }
