"""Lines of a cleaned text: of mended pairs, and what became of a pair and why.

A mended text is put in place of the one that was read; all else of a line stays as it is spelt.
"""

import json
import re
from collections.abc import Mapping, Sequence

from transformer.data.quality.cleaning.repair import Repaired
from transformer.data.quality.pair import NumberedPair
from transformer.data.text.parallel import Corpus, file_format

# Between the values of an object.
_GAP = re.compile(r"[\s:,]*")


def rewritten(lines: tuple[str, ...], corpus: Corpus, pair: NumberedPair) -> tuple[str, ...]:
    """Return the lines of a pair with its texts in place of those that were read."""
    texts = pair.source, pair.target
    if len(corpus.paths) == 2:
        return (*texts, *lines[2:])
    if file_format(corpus.paths[0]) == "tsv":
        return ("\t".join(texts), *lines[1:])
    new = dict(zip((corpus.source, corpus.target), texts, strict=True))
    return (_with_values(lines[0], new), *lines[1:])


def _with_values(line: str, new: Mapping[str, str]) -> str:
    """Return an object of JSON with other values of some keys.

    Not as Python would write it: that changes numbers, and drops what a key occurs twice for.
    """
    value_of, parts, done = json.JSONDecoder().raw_decode, [], 0
    position = _after(line, line.index("{") + 1)
    while line[position] != "}":
        key, position = value_of(line, position)
        begin = _after(line, position)
        _, end = value_of(line, begin)
        if key in new:
            parts += [line[done:begin], json.dumps(new[key], ensure_ascii=line.isascii())]
            done = end
        position = _after(line, end)
    return "".join([*parts, line[done:]])


def _after(line: str, position: int) -> int:
    """Return where the next value begins."""
    gap = _GAP.match(line, position)
    return position if gap is None else gap.end()


def repaired_record(given: NumberedPair, mended: Repaired) -> bytes:
    """Return a line of JSON: a pair as it was and as it is, and what was done."""
    after = {"source": mended.pair.source, "target": mended.pair.target}
    return record(given, {"repairs": mended.repairs}, after=after)


def record(
    pair: NumberedPair, what: Mapping[str, Sequence[str]], **more: Mapping[str, object]
) -> bytes:
    """Return a line of JSON: a pair, and what is wrong with it or was done."""
    row = {"line": pair.line, **what, "source": pair.source, "target": pair.target, **more}
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()
