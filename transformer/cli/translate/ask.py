"""``ask``: a server translates a file, line by line; a call that was killed resumes."""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_fields, resolve_path
from transformer.cli.translate.part_files import open_part
from transformer.common.errors import InputError
from transformer.common.files import given_path, written_whole
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import plain_pairs
from transformer.evaluation.metrics import MetricsConfig, nearest
from transformer.recipes.remote_client import Client, ask_all, counts
from transformer.recipes.remote_teacher import Answer, RemoteTeacher


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Ask for each line, and write the pairs of the lines that have an answer."""
    values, output = resolve_fields(config, RemoteTeacher), resolve_path(config, "output")
    if "{text}" not in values["prompt"]:
        values["prompt"] = "\n".join(read_lines(given_path(values["prompt"])))
    if (values["candidates"] > 1) != (config.reference is not None):
        raise InputError("candidates= and reference= go together: the nearest candidate is taken")
    client = Client(RemoteTeacher(**values))
    bleu = MetricsConfig(**resolve_fields(config, MetricsConfig)).bleu(effective_order=True)
    source = resolve_path(config, "input")
    paths = [source, resolve_path(config, "reference", source)]
    pairs = [*plain_pairs([*map(read_lines, paths)], paths)]
    output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = open_part(resolve_path(config, "answers", output / "answers.jsonl"), stack)[0]
        found = ask_all(client, [text for text, _ in pairs], file, sys.stderr.write)
    written: dict[str, list[str]] = {"source.txt": [], "target.txt": [], "left_out.jsonl": []}
    for number, (text, reference) in enumerate(pairs, 1):
        answer = found.get(text, Answer([], "blank"))
        if answer.texts:
            written["source.txt"].append(text)
            best = nearest(answer.texts[: values["candidates"]], reference, bleu)
            written["target.txt"].append(best)
        else:
            fault = {"line": number, "fault": answer.fault, "source": text}
            written["left_out.jsonl"].append(json.dumps(fault, ensure_ascii=False))
    for name, lines in written.items():
        with written_whole(output / name) as part:
            part.write_bytes("".join(f"{line}\n" for line in lines).encode())
    sizes = ", ".join(f"{output / name} {len(lines):,} lines" for name, lines in written.items())
    if not written["source.txt"]:
        raise InputError(f"{source}: no line has an answer; {sizes} has the reasons")
    print(f"{sizes}; answers: {counts(found.values())}")
