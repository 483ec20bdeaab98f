"""``text``: the splits of a corpus as plain files."""

from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from transformer.commands.corpus import one_corpus, split_names
from transformer.common.errors import InputError
from transformer.common.files import check_output_path, written_whole
from transformer.data.corpora.resolve import find_corpus_splits
from transformer.data.text.parallel import AnotherTarget
from transformer.settings.corpora import TextConfig


class WrittenSplit(NamedTuple):
    """The files of a split, source and target, and the number of their pairs."""

    files: tuple[Path, Path]
    pairs: int


def text(config: TextConfig) -> dict[str, WrittenSplit]:
    """Write the splits of a corpus as plain text, a sentence a line; returns them by name.

    Raises InputError if a file is there already, for what is wrong with the corpus, and for several
    right targets of a source to evaluate with, which plain text cannot hold.
    """
    data = one_corpus(config.data)
    splits = find_corpus_splits(data)
    files = {
        name: (config.output / f"{name}.{data.source}", config.output / f"{name}.{data.target}")
        for name in split_names(config.splits, splits)
    }
    read = [path for split in splits.values() for path in split.corpus.paths]
    for file in chain.from_iterable(files.values()):
        check_output_path(file, read)
        if file.exists():
            raise InputError(f"{file} is there already; name a new folder")
    for name in files:
        evaluated = name != "train" and not data.repeated_sources
        if evaluated and any(isinstance(target, AnotherTarget) for _, target in splits[name]):
            raise InputError(
                f"{splits[name].location}: the {name} text has several right targets of a source, "
                "and would have them on lines of their own; set data.repeated_sources=true here "
                "and for what reads the files, or leave it out (splits=[train])"
            )
    config.output.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, sides in files.items():
        pairs = 0
        with ExitStack() as stack:
            parts = [stack.enter_context(written_whole(file)) for file in sides]
            writers = [stack.enter_context(open(part, "wb")) for part in parts]
            for pair in splits[name]:
                for writer, sentence in zip(writers, pair, strict=True):
                    writer.write(sentence.encode() + b"\n")
                pairs += 1
        written[name] = WrittenSplit(sides, pairs)
    return written
