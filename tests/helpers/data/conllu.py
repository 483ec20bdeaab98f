"""Writes tagged sentences as `read_conllu` reads them."""

from collections.abc import Sequence


def format_conllu(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return a sentence as CoNLL-U writes it, a line end after each word; all else is unknown."""
    rows = enumerate(zip(words, tags, strict=True), start=1)
    return "".join(f"{index}\t{word}\t_\t{tag}" + 6 * "\t_" + "\n" for index, (word, tag) in rows)
