"""The model card of an export (huggingface/hub-docs, ``modelcard.md``); it names no folders."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import yaml

from transformer.checkpoint.run_directory import TUNED, find_checkpoint, is_exported, run_folder
from transformer.common.files import read_json
from transformer.common.hub import cached_model
from transformer.common.language_names import language_name
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.reports.page import REPORT
from transformer.reports.scores import read_scores
from transformer.settings.commands import Quantization
from transformer.settings.data import DataConfig
from transformer.settings.run import RunConfig

BEFORE_TUNING = "before_tuning"
"""Key of a report whose scores are those of before ``transformer tune``."""

_OWN_TEXT = ("files", "folder")
"""Names of ``data.corpus`` for the user's own files."""

Tests = dict[str, list[dict[str, Any]]]
"""By split: the name, score and signature of each metric, as the test of a run writes them."""


class Published(NamedTuple):
    """What is published: its license, its name on the Hub, and the type of its weights."""

    license: str
    repo: str | None = None
    quantization: Quantization = "float32"


def model_card(
    tokenizer: Tokenizer,
    run: RunConfig,
    report: dict[str, Any],
    library: str,
    about: Published,
) -> str:
    """The text of the card of a run, by values of its ``report.json``."""
    data = run.data
    found = report.get("tests", ())
    tests: Tests = {t["name"]: t["scores"][0] for t in found if t["name"].startswith("test")}
    languages = [data.source, *(tokenizer.tags.targets or [data.target])]
    (codes, task), pair, corpus = _task(languages), "-".join(languages), data.corpus
    name, base = about.repo or pair, _base(run.finetune_from)
    # The Hub shows these as scores of the model itself.
    own = {} if report.get(BEFORE_TUNING) else tests
    results = [_result(task, pair, corpus, split, scores) for split, scores in own.items()]
    front = {
        "language": codes,
        "license": about.license,
        "base_model": base if "/" in base else None,
        "library_name": library,
        "pipeline_tag": task if task == "translation" else None,
        "tags": [task],
        # A name of the user's own files is no dataset of the Hub.
        "datasets": [] if corpus in _OWN_TEXT else [corpus],
        "metrics": sorted({_metric(one) for scores in tests.values() for one in scores}),
        "model-index": [{"name": name, "results": results}] if results else [],
    }
    header = yaml.safe_dump({k: v for k, v in front.items() if v}, sort_keys=False)
    return f"---\n{header}---\n" + Template(_asset("model_card.md")).substitute(
        name=name,
        source=language_name(languages[0]),
        target=", ".join(map(language_name, languages[1:])),
        language="js" if library.endswith(".js") else "python",
        program=_program(library, about).rstrip(),
        text=" ".join([_training_text(data, base), *_made(report.get("runs", ()))]),
        scores=_scores(tests, report),
        limits="".join(_limits(report)),
        versions=", ".join(f"{one} {version(one)}" for one in ("transformer", "torch")),
    )


def _program(library: str, about: Published) -> str:
    """The program that loads a model of the Hub or, without ``repo``, the folder it runs in."""
    file = f"load_{library}.txt" if library.endswith(".js") else f"load_{library}.py.txt"
    dtype = "q8" if about.quantization == "int8" else "fp32"
    repo = about.repo
    program = _asset(file).replace("DTYPE", dtype).replace("REMOTE", "true" if repo else "false")
    comment = "//" if library.endswith(".js") else "#"
    start = "" if repo else f'{comment} In this folder, or with its path for ".":\n'
    return start + program.replace("NAME", repo or ".")


def _result(
    task: str, pair: str, corpus: str, split: str, scores: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "task": {"type": task, "name": f"{task.capitalize()} {pair}"},
        "dataset": {"type": corpus, "name": corpus, "config": pair, "split": split},
        "metrics": [
            {"type": _metric(one), "name": one["name"], "value": one["score"]}
            | {"args": {"signature": one["signature"]}}
            for one in scores
        ],
    }


def _task(languages: list[str]) -> tuple[list[str], str]:
    """The codes of languages, and the task; the Hub has no pipeline for other text to text."""
    codes = [one for one in dict.fromkeys(languages) if len(one.split("-")[0]) in (2, 3)]
    bases = {one: one.replace("_", "-").split("-")[0] for one in languages}  # eng_Latn is eng
    translates = len(bases) > 1 and all(len(base) in (2, 3) for base in bases.values())
    return codes, "translation" if translates else "text2text-generation"


def read_report(checkpoint: Path) -> dict[str, Any]:
    """The report of a run, with the scores of its test files, if this is its best checkpoint.

    That of ``tune`` has them, too; with BEFORE_TUNING, they were measured before it.
    """
    file = None if is_exported(checkpoint) else find_checkpoint(checkpoint)
    if file is None or file.stem not in ("best", TUNED):
        return {}
    folder = run_folder(checkpoint)
    report: dict[str, Any] = read_json(folder / f"{REPORT}.json") or {}
    known = {test["name"]: test for test in report.get("tests", ())}
    tests = [{"name": name, "scores": [scores]} for name, scores in read_scores(folder).items()]
    for number, test in enumerate(tests):
        before = known.get(test["name"], test)
        if before["scores"] == test["scores"]:
            tests[number] = before
    times = [(folder / f"{test['name']}.json").stat().st_mtime for test in tests]
    former = file.stem == TUNED and min(times, default=0.0) < file.stat().st_mtime
    return report | {"tests": tests, BEFORE_TUNING: former}


def _metric(score: dict[str, Any]) -> str:
    """The identifier of a metric on the Hub: chrF2 is ``chrf``, squad_f1 is ``squad``."""
    name = str(score["name"]).lower()
    return next((one for one in ("chrf", "rouge", "squad") if name.startswith(one)), name)


def _base(path: Path | None) -> str:
    return (cached_model(str(path)) or path.name) if path else ""


def _training_text(data: DataConfig, base: str) -> str:
    start = f", from the weights of `{base}`," if base else ""
    if data.corpus == "folder":
        return f"It was trained{start} on the files of `{Path(data.root or '').name}`."
    if data.corpus not in _OWN_TEXT:
        return f"It was trained{start} on the corpus `{data.corpus}`."
    corpora = (data.corpora or {}).values()
    texts = [data.train or (), *(corpus.train or () for corpus in corpora)]
    flat = [name for names in texts for name in ([names] if isinstance(names, str) else names)]
    names = ", ".join(f"`{Path(name).name}`" for name in flat)
    return f"It was trained{start} on {names or 'text that is not recorded: it was imported'}."


def _made(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    for run in runs:
        if train := (run["lengths"] or {}).get("train"):
            yield f"It saw {sum(train[0]):,} pairs, and has {run['parameters']:,} parameters."
        for start in run["starts"][-1:]:
            hardware = start["hardware"]
            yield f"Hardware: {hardware['gpu'] or hardware['processor']}."


def _scores(tests: Tests, report: dict[str, Any]) -> str:
    if not tests:
        return "The run has no scores of this checkpoint."
    note = "Measured before `transformer tune` chose the weights and the search of this model:\n\n"
    return note * bool(report.get(BEFORE_TUNING)) + _score_table(tests, report)


def _score_table(tests: Tests, report: dict[str, Any]) -> str:
    compared = {t["name"]: t.get("comparison") or {"metrics": ()} for t in report["tests"]}
    intervals = {
        (split, metric["name"]): f"{mean - half:.2f} to {mean + half:.2f}"
        for split, comparison in compared.items()
        for metric in comparison["metrics"]
        for mean, half in [(metric["systems"][0]["mean"], metric["systems"][0]["interval"])]
    }
    rows = [
        (
            *(split, one["name"], one["score"], intervals.get((split, one["name"]), "")),
            # A bar ends a cell, also inside of a code span.
            f"`{one['signature']}`".replace("|", "\\|"),
        )
        for split, scores in tests.items()
        for one in scores
    ]
    return _table(("text", "metric", "score", "95 % interval", "signature"), rows)


def _limits(report: dict[str, Any]) -> Iterator[str]:
    for run in report.get("runs", ()):
        if failures := run["failures"]:
            rows = [(k, f["hypothesis"], f["reference"]) for k, f in failures["flags"].items()]
            yield f"\n## Failures in {failures['sentences']:,} outputs\n\n"
            yield _table(("flag", "outputs", "references"), rows) + "\n"
        if stress := run["stress"]:
            known = [one for one in stress["disturbances"] if one["score"] is not None]
            rows = [(one["name"], one["score"], one["loss"]) for one in known]
            header = ("disturbed source", stress["metric"], "loss")
            yield f"\n## Robustness\n\n{_table(header, [('none', stress['clean'], ''), *rows])}\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    shown = (("-" if cell is None else str(cell) for cell in line) for line in lines)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in shown)


def _asset(name: str) -> str:
    return (files("transformer.interchange") / "assets" / name).read_text(encoding="utf-8")
