"""What a call of ``compare`` compares: a text, and what each system says.

It does not know how systems are compared.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from omegaconf import DictConfig, OmegaConf

from transformer.cli.kept_hypotheses import FOLDER, hypotheses_of
from transformer.cli.load import load_translator, refuse_idle
from transformer.cli.resume import run_folder_of
from transformer.cli.survey import known_split
from transformer.data.corpus import Corpus, Pair
from transformer.data.lines import read_lines
from transformer.decoding.translator import Translator
from transformer.errors import InputError
from transformer.evaluation.comparison import ComparedText, System
from transformer.model.checkpoint import find_checkpoint
from transformer.training.typed import typed_value

_OF_RUNS = ("decoding", "device", "precision", "batch_tokens", "to", "tag")


@dataclass(frozen=True)
class Compared:
    """A text and who translated it.

    Attributes:
        text: The name, sources and references.
        systems: In the order of the call.
        run: The config of the first run; None if there is none.
    """

    text: ComparedText
    systems: list[System]
    run: dict[str, Any] | None


def find_compared(config: DictConfig, arguments: Sequence[str]) -> Compared:
    """Read the text and the hypotheses, and translate where there are none yet.

    Raises:
        InputError: A file or a run cannot be read, an argument does nothing, or the runs have
            other sources or references.
    """
    values: Any = OmegaConf.to_container(config)
    paths = list(map(Path, typed_value(values["runs"], Sequence[str], "runs")))
    if len(paths) < 2:
        raise InputError("one system alone cannot be compared; give two or more")
    runs = list(dict.fromkeys(path for path in paths if path.is_dir() or is_zipfile(path)))
    _refuse_idle(config, arguments, runs)
    text = own = _own_text(config)
    systems: dict[Path, System] = {}
    first = None
    for path in runs:
        # One after the other: the models need not fit the memory together.
        single = OmegaConf.create({**values, "checkpoint": str(path)})
        translator, run = load_translator(single, arguments)
        first = first or run
        # Equal texts may have other tags, which are those of the run.
        pairs = list(known_split(run["data"], config.split)) if own is None else own
        if text is None:
            text = pairs
        elif pairs != text:
            raise InputError(_difference(text, pairs, f"{path} and {runs[0]}", config.split))
        systems[path] = _of_run(path, translator, pairs, _name(config))
    assert text is not None  # files alone have been refused
    for path in paths:
        if path not in systems:
            systems[path] = _of_file(path, text)
    sources, references = ([pair[side] for pair in text] for side in (0, 1))
    of_all = ComparedText(_name(config), sources, references)
    return Compared(of_all, [systems[path] for path in paths], first)


def training_text(config: DictConfig, run: dict[str, Any] | None) -> Iterator[str] | None:
    """The target side of what the first run learnt from, or the user's file, if it is wanted.

    Where the text is not there any more, stderr says so.

    Raises:
        InputError: The user's own file cannot be read.
    """
    wanted = typed_value(config.training, bool | str, "training")
    if wanted is False:
        return None
    if wanted is not True:
        return read_lines(Path(wanted))
    try:
        if run is None:
            raise InputError("there is no run among the systems")
        text = known_split(run["data"], "train")
        next(iter(text), None)  # Whether it can be read shows when it is.
    except InputError as error:
        note = f"no table of words by frequency, for want of the training text: {error}"
        print(f"note: {note}; training=FILE gives one", file=sys.stderr)
        return None
    return (target for _, target in text)


def _name(config: DictConfig) -> str:
    return str(config.split) if config.source is None else Path(config.source).name


def _refuse_idle(config: DictConfig, arguments: Sequence[str], runs: Sequence[Path]) -> None:
    """Refuse what would do nothing.

    Raises:
        InputError: There is such an argument.
    """
    if config.source is None:
        refuse_idle(config, ("to", "tag"), "source=FILE reference=FILE")
        if not runs:
            raise InputError(
                "files of hypotheses alone do not say what they translate; give source=FILE and "
                "reference=FILE"
            )
    for argument in arguments:
        key = argument.partition("=")[0]
        if key == "split" and config.source is not None:
            raise InputError(f"{argument} does nothing beside source=FILE; leave one out")
        if key == "frequencies" and config.training is False:
            raise InputError(f"{argument} does nothing beside training=false; leave one out")
        if key.split(".")[0] in _OF_RUNS and not runs:
            raise InputError(f"{argument} is for runs, but all of these are files of hypotheses")


def _own_text(config: DictConfig) -> list[Pair] | None:
    if (config.source is None) != (config.reference is None):
        raise InputError("source=FILE and reference=FILE go together; give both or neither")
    if config.source is None:
        return None
    return list(Corpus.of([config.source, config.reference], "source", "reference"))


def _of_run(path: Path, translator: Translator, pairs: Sequence[Pair], name: str) -> System:
    sources = [source for source, _ in pairs]
    said = hypotheses_of(translator, sources, run_folder_of(path) / FOLDER, name)
    exported = (path / "model.safetensors").is_file()
    checkpoint = path if exported else find_checkpoint(path)
    about = {"checkpoint": str(checkpoint), "search": asdict(translator.search)}
    return System(str(path), said, about)


def _of_file(path: Path, pairs: Sequence[Pair]) -> System:
    lines = list(read_lines(path))
    if len(lines) != len(pairs):
        raise InputError(
            f"{path} has {len(lines)} lines for {len(pairs)} sentences; give one hypothesis for "
            "each, in their order"
        )
    return System(str(path), lines)


def _difference(known: Sequence[Pair], other: Sequence[Pair], whose: str, split: str) -> str:
    """Where two texts of a split part."""
    both = enumerate(zip(known, other, strict=False), 1)
    first = next(((n, one[0] != two[0]) for n, (one, two) in both if one != two), None)
    where = f"{len(other)} and {len(known)} pairs"
    if first is not None:
        where = f"other {'sources' if first[1] else 'references'}, first in pair {first[0]}"
    return (
        f"split={split} is not the same text for {whose}: {where}; give a text for all with "
        "source=FILE reference=FILE"
    )
