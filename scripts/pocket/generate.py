"""Make the text of data/pocket/ from the grammar: ``python -m scripts.pocket.generate OUTPUT``.

Takes half a minute. data/pocket/README.md describes the files.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from scripts.pocket.grammar import Derivation, Grammar
from scripts.pocket.linearization import SentencePair

LANGUAGE = Path(__file__).parent / "language"
SEED = 1
SIZES: Mapping[str, int] = {"train": 40_000, "validation": 500, "test": 1_000, "test_novel": 500}


def generate_splits(
    grammar: Grammar, seed: int, sizes: Mapping[str, int]
) -> dict[str, list[SentencePair]]:
    """Sentence pairs of train, validation, test and test_novel; no source sentence twice.

    test_novel has only words of train, but in each sentence a combination of words, or of a
    word and a construction, that the other splits never contain.

    Raises:
        ValueError: the training split is too small to know the words of test_novel.
    """
    stream = _distinct(grammar.derivations(seed))
    ordinary: list[Derivation] = []
    novel: list[Derivation] = []
    wanted = sizes["validation"] + sizes["test"] + sizes["train"]
    while len(ordinary) < wanted:
        derivation = next(stream)
        if derivation.held_out:
            novel.append(derivation)
        else:
            ordinary.append(derivation)
    test_start = sizes["validation"]
    train_start = test_start + sizes["test"]
    splits = {
        "train": ordinary[train_start:],
        "validation": ordinary[:test_start],
        "test": ordinary[test_start:train_start],
    }
    known = {part for item in splits["train"] for part in _parts(item)}
    later = (item for item in islice(stream, 2 * wanted) if item.held_out)
    understood = (item for item in chain(novel, later) if known.issuperset(_parts(item)))
    splits["test_novel"] = list(islice(understood, sizes["test_novel"]))
    if len(splits["test_novel"]) < sizes["test_novel"]:
        raise ValueError(f"{sizes['train']} pairs of train know too few words for test_novel")
    return {name: [item.pair for item in items] for name, items in splits.items()}


def _distinct(derivations: Iterable[Derivation]) -> Iterator[Derivation]:
    """Yield each English sentence once."""
    seen: set[tuple[str, ...]] = set()
    for derivation in derivations:
        if derivation.pair.english.words not in seen:
            seen.add(derivation.pair.english.words)
            yield derivation


def _parts(derivation: Derivation) -> Iterator[str]:
    """Yield the entries and words of a derivation."""
    yield from derivation.lemmas
    yield from (f"en {word}" for word in derivation.pair.english.words)
    yield from (f"de {word}" for word in derivation.pair.german.words)


def input_files(splits: Mapping[str, Sequence[SentencePair]]) -> Iterator[tuple[str, str]]:
    """Yield the name of each file, without ``.gz``, and its text."""
    for split, pairs in splits.items():
        links = [sorted(pair.links) for pair in pairs]
        swapped = [sorted((german, english) for english, german in row) for row in links]
        lines = {
            f"{split}.en": [pair.english.text for pair in pairs],
            f"{split}.de": [pair.german.text for pair in pairs],
            f"tags/{split}.en": [" ".join(pair.english.tags) for pair in pairs],
            f"tags/{split}.de": [" ".join(pair.german.tags) for pair in pairs],
            f"links/{split}.en-de": [_pharaoh(row) for row in links],
            f"links/{split}.de-en": [_pharaoh(row) for row in swapped],
        }
        for name, rows in lines.items():
            yield name, "".join(f"{row}\n" for row in rows)


def _pharaoh(links: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"{source}-{target}" for source, target in links)


def write(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    """Write files gzipped, without name and time: the same text makes the same bytes."""
    for name, text in files:
        path = folder / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
            packed.write(text.encode())


def main() -> None:
    """Write the corpus to the folder that is given."""
    parser = argparse.ArgumentParser(description="Make the pocket corpus.")
    parser.add_argument("output", type=Path, help="folder to write to, such as data/pocket")
    output = parser.parse_args().output
    try:
        output.mkdir(parents=True, exist_ok=True)
        splits = generate_splits(Grammar.load(LANGUAGE), SEED, SIZES)
        write(output, input_files(splits))
    except (OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
