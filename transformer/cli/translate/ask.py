"""``ask``: a server translates a file, line by line; a call that was killed resumes."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_fields, resolve_path
from transformer.cli.progress import counted
from transformer.cli.translate.select import candidate_choice
from transformer.commands.part_files import open_part
from transformer.common.errors import InputError
from transformer.common.files import given_path, written_whole
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import plain_pairs
from transformer.recipes.remote_client import ANSWER_START, Client, ask_all, counts
from transformer.recipes.remote_teacher import Answer, RemoteTeacher
from transformer.settings.metrics import MetricsConfig


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Ask for each line, and write the pairs of the lines that have an answer."""
    values, output = resolve_fields(config, RemoteTeacher), resolve_path(config, "output")
    source = resolve_path(config, "input")
    paths = [source, resolve_path(config, "reference", source)]
    answers = resolve_path(config, "answers", output / "answers.jsonl")
    written: dict[str, list[str]] = {"source.txt": [], "target.txt": [], "left_out.jsonl": []}
    prompt = given_path(values["prompt"])
    _check_paths([*paths, prompt], [answers, *(output / name for name in written)])
    if "{text}" not in values["prompt"]:
        values["prompt"] = "\n".join(read_lines(prompt))
    if (config.reference, config.reverse).count(None) != 2 - (values["candidates"] > 1):
        raise InputError("candidates=N goes with one of reference=FILE and reverse=RUN")
    client = Client(RemoteTeacher(**values))
    metrics = MetricsConfig(**resolve_fields(config, MetricsConfig))
    choose = candidate_choice(config, metrics, (config.source, config.target))
    pairs = [*plain_pairs([*map(read_lines, paths)], paths)]
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = open_part(answers, stack, ANSWER_START)[0]
        texts = [text for text, _ in pairs]
        different = len({text for text in texts if text.strip()})
        with counted("asked for different lines", different) as report:
            found = ask_all(client, texts, file, report)
    lists: list[tuple[dict[str, float], str]] = []
    for number, (text, other) in enumerate(pairs, 1):
        answer = found.get(text, Answer([], "blank"))
        if answer.texts:
            written["source.txt"].append(text)
            lists.append((dict.fromkeys(answer.texts[: values["candidates"]], 0.0), other))
        else:
            fault = {"line": number, "fault": answer.fault, "source": text}
            written["left_out.jsonl"].append(json.dumps(fault, ensure_ascii=False))
    written["target.txt"] += choose(lists)
    for name, lines in written.items():
        with written_whole(output / name) as part:
            part.write_bytes("".join(f"{line}\n" for line in lines).encode())
    _check_left_out(client.teacher, found, output / "left_out.jsonl")
    sizes = ", ".join(f"{output / name} {len(lines):,} lines" for name, lines in written.items())
    print(f"{sizes}; answers: {counts(found.values())}")


def _check_paths(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise InputError where an output would overwrite an input, or another output."""
    files = [*{*map(os.path.realpath, inputs)}, *map(os.path.realpath, outputs)]
    for file in files:
        if files.count(file) > 1:
            raise InputError(f"{file} would be overwritten; give another output= or answers=")


def _check_left_out(teacher: RemoteTeacher, found: Mapping[str, Answer], reasons: Path) -> None:
    """Raise InputError if too many of the different lines have no answer, or all of them."""
    count = sum(not answer.texts for answer in found.values())
    if count > teacher.max_left_out * len(found) or count == len(found):
        advice = f", max_left_out=1 (now {teacher.max_left_out}) leaves them out"
        raise InputError(
            f"{count:,} of {len(found):,} different lines have no answer: {reasons} tells why; "
            f"the same command asks again where the server failed{advice * (count < len(found))}"
        )
