"""``text``: the splits of a corpus as plain files."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path
from transformer.cli.data.corpus_options import data_config, split_names
from transformer.cli.translate.line_io import check_output_path
from transformer.common.errors import InputError
from transformer.common.files import written_whole
from transformer.data.corpora.resolve import find_corpus_splits


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Write the text."""
    data = data_config(config)
    splits = find_corpus_splits(data)
    folder = resolve_path(config, "output")
    files = {
        name: [folder / f"{name}.{language}" for language in (data.source, data.target)]
        for name in split_names(config, splits)
    }
    read = [path for split in splits.values() for path in split.corpus.paths]
    for file in chain.from_iterable(files.values()):
        check_output_path(file, read)
        if file.exists():
            raise InputError(f"{file} is there already; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, sides in files.items():
        pairs = 0
        with ExitStack() as stack:
            parts = [stack.enter_context(written_whole(file)) for file in sides]
            writers = [stack.enter_context(open(part, "wb")) for part in parts]
            for pair in splits[name]:
                for writer, text in zip(writers, pair, strict=True):
                    writer.write(text.encode() + b"\n")
                pairs += 1
        print(f"{name}: {pairs:,} pairs", file=sys.stderr)
