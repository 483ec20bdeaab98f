"""Lines of a cleaned text, and records of what was rejected or repaired."""

import json
import re
from collections.abc import Mapping

from transformer.data.quality.pair import NumberedPair
from transformer.data.text.parallel import Corpus, file_format

# Between the values of a JSON object.
_GAP = re.compile(r"[\s:,]*")


def rewrite(lines: tuple[str, ...], corpus: Corpus, pair: NumberedPair) -> tuple[str, ...]:
    """Return the lines of a pair with its repaired texts; all else stays as it is spelt."""
    if len(corpus.paths) == 2:
        return (*pair.texts, *lines[2:])
    if file_format(corpus.paths[0]) == "tsv":
        return ("\t".join(pair.texts), *lines[1:])
    values = dict(zip((corpus.source, corpus.target), pair.texts, strict=True))
    return (_replace_values(lines[0], values), *lines[1:])


def _replace_values(line: str, values: Mapping[str, str]) -> str:
    """Return a JSON object with other values of some keys.

    Python's own output would change numbers, and drop values of a key that occurs twice.
    """
    decode, parts, done = json.JSONDecoder().raw_decode, [], 0
    position = _skip_gap(line, line.index("{") + 1)
    while line[position] != "}":
        key, position = decode(line, position)
        start = _skip_gap(line, position)
        _, end = decode(line, start)
        if key in values:
            parts += [line[done:start], json.dumps(values[key], ensure_ascii=line.isascii())]
            done = end
        position = _skip_gap(line, end)
    return "".join([*parts, line[done:]])


def _skip_gap(line: str, position: int) -> int:
    """Return where the next value begins."""
    gap = _GAP.match(line, position)
    return position if gap is None else gap.end()


def record(pair: NumberedPair, reason: Mapping[str, object], **more: object) -> bytes:
    """Return a line of JSON: a pair as it was read, and why it was rejected or changed."""
    values = {"line": pair.line, **reason, "source": pair.source, "target": pair.target, **more}
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()
