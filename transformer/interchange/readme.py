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
from transformer.data.tokenization.tags import Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.architectures import marian
from transformer.interchange.architectures.architecture import nearest_architecture
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
    published: Published,
) -> str:
    """The text of the card of a run, by values of its ``report.json``."""
    data = run.data
    tests: Tests = {}
    for test in report.get("tests", ()):
        if test["name"].startswith("test"):
            tests[test["name"]] = test["scores"][0]
    languages = [data.source, *(tokenizer.tags.targets or [data.target])]
    codes, task = _task(languages)
    pair = "-".join(languages)
    name = published.repo or pair
    base = _base(run.finetune_from)
    results = []
    # The Hub shows these as scores of the model itself, so those of before tuning are left out.
    if not report.get(BEFORE_TUNING):
        results = [
            _result(task, pair, data.corpus, split, scores) for split, scores in tests.items()
        ]
    front = {
        "language": codes,
        "license": published.license,
        "base_model": base if "/" in base else None,
        "library_name": library,
        "pipeline_tag": task if task == "translation" else None,
        "tags": [task],
        # A name of the user's own files is no dataset of the Hub.
        "datasets": [] if data.corpus in _OWN_TEXT else [data.corpus],
        "metrics": sorted({_metric(score) for scores in tests.values() for score in scores}),
        "model-index": [{"name": name, "results": results}] if results else [],
    }
    header = yaml.safe_dump({key: value for key, value in front.items() if value}, sort_keys=False)
    return f"---\n{header}---\n" + Template(_asset("model_card.md")).substitute(
        name=name,
        source=language_name(languages[0]),
        target=", ".join(map(language_name, languages[1:])),
        language="js" if library.endswith(".js") else "python",
        program=_program(library, tokenizer, run, published).rstrip(),
        text=" ".join([_training_text(data, base), *_made(report.get("runs", ()))]),
        scores=_scores(tests, report),
        limits="".join(_limits(report)),
        versions=", ".join(f"{package} {version(package)}" for package in ("transformer", "torch")),
    )


def _program(library: str, tokenizer: Tokenizer, run: RunConfig, published: Published) -> str:
    """The program that loads a model of the Hub or, without ``repo``, the folder it runs in."""
    javascript = library.endswith(".js")
    name = library
    if library == "transformers" and tokenizer.tags.speech is not None:
        name = "whisper"
    elif library == "transformers" and tokenizer.tags.both_sides:
        name = "transformers_tagged"
    program = _asset(f"load_{name}.txt" if javascript else f"load_{name}.py.txt")
    is_marian = nearest_architecture(run.model).files is marian
    program = program.replace("TOKENIZER", "MarianTokenizer" if is_marian else "AutoTokenizer")
    program = program.replace("SOURCE", run.data.source).replace("TARGET", run.data.target)
    keys = _needed_tags(tokenizer.tags, run.data)
    if library == "transformer":
        named = "".join(f', {key}="{value}"' for key, value in keys.items())
        program = program.replace('"NAME"', f'"NAME"{named}')
    elif name == "transformers" and "to" in keys:
        # A text for Marian begins with the code of its target.
        program = program.replace("…", f">>{keys['to']}<< …")
    program = program.replace("BEAM", str(run.decoding.beam_size))
    program = program.replace("DTYPE", "q8" if published.quantization == "int8" else "fp32")
    if published.repo:
        return program.replace("REMOTE", "true").replace("NAME", published.repo)
    comment = "//" if javascript else "#"
    program = program.replace("REMOTE", "false").replace("NAME", ".")
    return f'{comment} In this folder, or with its path for ".":\n{program}'


def _needed_tags(tags: Tags, data: DataConfig) -> dict[str, str]:
    """The tags that each source needs, by their keys in a `TranslatorConfig`."""
    needed = {}
    if tags.targets and tags.speech is None:  # a model of speech detects its language
        if tags.both_sides:
            needed["from_"] = data.source
        needed["to"] = data.target if data.target in tags.targets else tags.targets[0]
    if tags.corpora and not tags.optional:
        needed["tag"] = tags.corpora[0]
    return needed


def _result(
    task: str, pair: str, corpus: str, split: str, scores: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "task": {"type": task, "name": f"{task.capitalize()} {pair}"},
        "dataset": {"type": corpus, "name": corpus, "config": pair, "split": split},
        "metrics": [
            {
                "type": _metric(score),
                "name": score["name"],
                "value": score["score"],
                "args": {"signature": score["signature"]},
            }
            for score in scores
        ],
    }


def _task(languages: list[str]) -> tuple[list[str], str]:
    """The codes of languages, and the task; the Hub has no pipeline for other text to text."""
    codes = [code for code in dict.fromkeys(languages) if len(code.split("-")[0]) in (2, 3)]
    bases = {code: code.replace("_", "-").split("-")[0] for code in languages}  # eng_Latn is eng
    translates = len(bases) > 1 and all(len(base) in (2, 3) for base in bases.values())
    return codes, "translation" if translates else "text2text-generation"


def read_report(checkpoint: Path) -> dict[str, Any]:
    """The report of a run, with the scores of its test files, if this is its best checkpoint.

    The checkpoint of ``tune`` has them, too; BEFORE_TUNING tells whether they are older than it.
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
    return next((known for known in ("chrf", "rouge", "squad") if name.startswith(known)), name)


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
        train = (run["lengths"] or {}).get("train")
        if train:
            yield f"It saw {sum(train[0]):,} pairs, and has {run['parameters']:,} parameters."
        for start in run["starts"][-1:]:
            hardware = start["hardware"]
            yield f"Hardware: {hardware['gpu'] or hardware['processor']}."


def _scores(tests: Tests, report: dict[str, Any]) -> str:
    if not tests:
        return "The run has no scores of this checkpoint."
    intervals = {}
    for test in report["tests"]:
        comparison = test.get("comparison") or {"metrics": ()}
        for metric in comparison["metrics"]:
            mean = metric["systems"][0]["mean"]
            half = metric["systems"][0]["interval"]
            intervals[test["name"], metric["name"]] = f"{mean - half:.2f} to {mean + half:.2f}"
    rows = []
    for split, scores in tests.items():
        for score in scores:
            interval = intervals.get((split, score["name"]), "")
            # A bar ends a cell, also inside of a code span.
            signature = f"`{score['signature']}`".replace("|", "\\|")
            rows.append((split, score["name"], score["score"], interval, signature))
    table = _table(("text", "metric", "score", "95 % interval", "signature"), rows)
    if report.get(BEFORE_TUNING):
        note = "Measured before `transformer tune` chose the weights and the search of this model:"
        return f"{note}\n\n{table}"
    return table


def _limits(report: dict[str, Any]) -> Iterator[str]:
    for run in report.get("runs", ()):
        failures = run["failures"]
        if failures:
            rows = [
                (flag, counts["hypothesis"], counts["reference"])
                for flag, counts in failures["flags"].items()
            ]
            yield f"\n## Failures in {failures['sentences']:,} outputs\n\n"
            yield _table(("flag", "outputs", "references"), rows) + "\n"
        stress = run["stress"]
        if stress:
            rows = [("none", stress["clean"], "")]
            for disturbance in stress["disturbances"]:
                if disturbance["score"] is not None:
                    rows.append((disturbance["name"], disturbance["score"], disturbance["loss"]))
            header = ("disturbed source", stress["metric"], "loss")
            yield f"\n## Robustness\n\n{_table(header, rows)}\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = []
    for row in (header, ["---"] * len(header), *rows):
        cells = ["-" if cell is None else str(cell) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _asset(name: str) -> str:
    return (files("transformer.interchange") / "assets" / name).read_text(encoding="utf-8")
