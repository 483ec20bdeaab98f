"""What a call of ``compare`` compares: a text, and what each system says.

It does not know how systems are compared.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from omegaconf import DictConfig, OmegaConf

from transformer.cli.evaluate.scored_text import (
    own_text,
    pairs_to_score,
    require_trusted,
    scored_split,
    text_name,
)
from transformer.cli.load import check_unused_settings, load_translator
from transformer.cli.models import resolve_file
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.common.schema import typed_value
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import Pair
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.attention.head_survey import known_split
from transformer.evaluation.comparison.compare import ComparedText, ComparisonConfig, System
from transformer.evaluation.comparison.hypothesis_cache import FOLDER, load_hypotheses
from transformer.model.checkpoint.locate import run_folder

_Systems = dict[Path, System]
_OF_RUNS = ("decoding", "device", "precision", "batch_tokens", "to", "tag")


@dataclass(frozen=True)
class Compared:
    """A text and who translated it.

    Attributes:
        text: The name, sources and references.
        systems: In the order of the call.
        run: The config of the first run; None if there is none.
        measured: What of them, and how.
    """

    text: ComparedText
    systems: list[System]
    run: dict[str, Any] | None
    measured: ComparisonConfig


def find_compared(
    config: DictConfig,
    arguments: Sequence[str],
    measured: Callable[[dict[str, Any] | None], ComparisonConfig],
) -> Compared:
    """Read the text and the hypotheses, and translate where there are none yet.

    Args:
        config: Of the call.
        arguments: Of the call, but for paths.
        measured: What is measured, by the config of the first run; called before anything is
            translated.

    Raises:
        InputError: A file or a run cannot be read, an argument does nothing, or the runs have
            other sources or references.
    """
    paths, runs = _paths(config)
    _check_unused(config, arguments, runs)
    text = own = None if (files := own_text(config, arguments)) is None else pairs_to_score(files)
    hypotheses = {path: list(read_lines(path)) for path in paths if path not in runs}
    systems = {} if text is None else _of_files(hypotheses, text)
    first, wanted = None, measured(None)
    for path in runs:
        # One after the other: the models need not fit the memory together.
        single = OmegaConf.create({**config, "checkpoint": str(path)})
        translator, run = load_translator(single, arguments)
        if first is None:
            first, wanted = run, measured(run)
        # Equal texts may have other tags, which are those of the run.
        pairs = pairs_to_score(scored_split(single, run)) if own is None else own
        if text is None:
            text, systems = pairs, _of_files(hypotheses, pairs)
        elif pairs != text:
            raise InputError(_difference(text, pairs, f"{path} and {runs[0]}", config.split))
        systems[path] = _of_run(path, translator, pairs, text_name(config))
    assert text is not None  # files alone have been refused
    sources, references = ([pair[side] for pair in text] for side in (0, 1))
    of_all = ComparedText(text_name(config), sources, references)
    return Compared(of_all, [systems[path] for path in paths], first, wanted)


def _paths(config: DictConfig) -> tuple[list[Path], list[Path]]:
    """All systems, and the runs among them, each once."""
    values: Any = OmegaConf.to_container(config)
    paths = list(map(given_path, typed_value(values["runs"], Sequence[str], "runs")))
    if len(paths) < 2:
        raise InputError("one system alone cannot be compared; give two or more")
    return paths, list(dict.fromkeys(path for path in paths if path.is_dir() or is_zipfile(path)))


def own_training_text(config: DictConfig) -> Iterator[str] | None:
    """The user's file, if one is named; it is open, and its beginning can be read.

    Raises:
        InputError: It cannot.
    """
    wanted = typed_value(config.training, bool | str, "training")
    if isinstance(wanted, bool):
        return None
    lines = read_lines(given_path(wanted))
    # A pipe can be read only once.
    first = [line for line in [next(lines, None)] if line is not None]
    return chain(first, lines)


def training_text(config: DictConfig, run: dict[str, Any] | None) -> Iterator[str] | None:
    """The target side of what the first run learnt from; where it is not there, stderr says so."""
    try:
        if run is None:
            raise InputError("there is no run among the systems")
        require_trusted(config, run)
        text = known_split(run["data"], "train")
        next(iter(text), None)  # Whether it can be read shows when it is.
    except InputError as error:
        note = f"no table of words by frequency, for want of the training text: {error}"
        print(f"note: {note}; training=FILE gives one", file=sys.stderr)
        return None
    return (target for _, target in text)


def _check_unused(config: DictConfig, arguments: Sequence[str], runs: Sequence[Path]) -> None:
    """Refuse what would do nothing.

    Raises:
        InputError: There is such an argument.
    """
    if config.source is None:
        check_unused_settings(config, ("to", "tag"), "source=FILE reference=FILE")
        if not runs:
            raise InputError(
                "files of hypotheses alone do not say what they translate; give source=FILE and "
                "reference=FILE"
            )
    for argument in arguments:
        key = argument.partition("=")[0]
        if key == "frequencies" and config.training is False:
            raise InputError(f"{argument} does nothing beside training=false; leave one out")
        if key.split(".")[0] in _OF_RUNS and not runs:
            raise InputError(f"{argument} is for runs, but all of these are files of hypotheses")


def _of_run(path: Path, translator: Translator, pairs: Sequence[Pair], name: str) -> System:
    sources = [source for source, _ in pairs]
    said = load_hypotheses(translator, sources, run_folder(path) / FOLDER, name)
    about = {"checkpoint": str(resolve_file(path)), "search": asdict(translator.search)}
    return System(str(path), said, about)


def _of_files(hypotheses: Mapping[Path, Sequence[str]], pairs: Sequence[Pair]) -> _Systems:
    for path, lines in hypotheses.items():
        if len(lines) != len(pairs):
            raise InputError(
                f"{path} has {len(lines)} lines for {len(pairs)} sentences; give one hypothesis "
                "for each, in their order"
            )
    return {path: System(str(path), lines) for path, lines in hypotheses.items()}


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
