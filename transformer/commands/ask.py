"""``ask``: a server translates a file, line by line; a call that was killed resumes."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from transformer.checkpoint.checkpoint import Loaded
from transformer.commands.line_files import open_part
from transformer.commands.select import candidate_choice
from transformer.common.errors import InputError
from transformer.common.files import given_path, written_whole
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import plain_pairs
from transformer.recipes.remote_teacher import ANSWER_START, Answer, Client, RemoteTeacher, ask_all
from transformer.settings.commands import AskConfig, ServerKeys

SOURCE = "source.txt"
TARGET = "target.txt"
LEFT_OUT = "left_out.jsonl"
"""Files of the output: the pairs, and the lines without an answer."""


class Asked(NamedTuple):
    """The number of lines of each file, and the answer for each different line."""

    lines: Mapping[Path, int]
    answers: Mapping[str, Answer]


def ask(
    config: AskConfig,
    *,
    show: Callable[[int, int, str], None] = lambda done, total, counts: None,
    loaded: Loaded = lambda checkpoints: None,
) -> Asked:
    """Ask a server for each line, and write the pairs of the lines that have an answer.

    ``show`` is told how many different lines are done, of how many, and the counts of the answers;
    ``loaded`` is told the checkpoint of ``reverse``. Raises InputError for a server that does not
    answer, and if too many lines have no answer: the files are written then, too.
    """
    paths = [config.input, config.reference or config.input]
    output = config.output
    answers = config.answers or output / "answers.jsonl"
    written: dict[str, list[str]] = {SOURCE: [], TARGET: [], LEFT_OUT: []}
    prompt = given_path(config.prompt)
    _check_paths([*paths, prompt], [answers, *(output / name for name in written)])
    values = {field.name: getattr(config, field.name) for field in fields(ServerKeys)}
    if "{text}" not in config.prompt:
        values["prompt"] = "\n".join(read_lines(prompt))
    client = Client(RemoteTeacher(**values))
    languages = (config.source, config.target)
    choose = candidate_choice(config.reverse_model, config.metrics, languages, loaded=loaded)
    pairs = [*plain_pairs([*map(read_lines, paths)], paths)]
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = open_part(answers, stack, ANSWER_START)[0]
        texts = [text for text, _ in pairs]
        different = len({text for text in texts if text.strip()})
        answered = ask_all(client, texts, file, lambda done, counts: show(done, different, counts))
    lists: list[tuple[dict[str, float], str]] = []
    for number, (text, reference) in enumerate(pairs, 1):
        answer = answered.get(text, Answer([], "blank"))
        if answer.texts:
            written[SOURCE].append(text)
            lists.append((dict.fromkeys(answer.texts[: config.candidates], 0.0), reference))
        else:
            fault = {"line": number, "fault": answer.fault, "source": text}
            written[LEFT_OUT].append(json.dumps(fault, ensure_ascii=False))
    written[TARGET] += choose(lists)
    for name, lines in written.items():
        with written_whole(output / name) as part:
            part.write_bytes("".join(f"{line}\n" for line in lines).encode())
    _check_left_out(config, answered, output / LEFT_OUT)
    return Asked({output / name: len(lines) for name, lines in written.items()}, answered)


def _check_paths(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise InputError where an output would overwrite an input, or another output."""
    files = [*{*map(os.path.realpath, inputs)}, *map(os.path.realpath, outputs)]
    for file in files:
        if files.count(file) > 1:
            raise InputError(f"{file} would be overwritten; give another output= or answers=")


def _check_left_out(config: AskConfig, answers: Mapping[str, Answer], reasons: Path) -> None:
    """Raise InputError if too many of the different lines have no answer, or all of them."""
    count = sum(not answer.texts for answer in answers.values())
    if count > config.max_left_out * len(answers) or count == len(answers):
        advice = ""
        if count < len(answers):
            advice = f", max_left_out=1 (now {config.max_left_out}) leaves them out"
        raise InputError(
            f"{count:,} of {len(answers):,} different lines have no answer: {reasons} tells why; "
            f"the same command asks again where the server failed{advice}"
        )
