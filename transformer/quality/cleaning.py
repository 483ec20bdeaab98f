"""Repairs pairs, writes good pairs to files like the input, and rejected pairs to records."""

import gzip
import json
from array import array
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BufferedWriter
from itertools import islice, repeat
from pathlib import Path

import numpy as np

from transformer.common.errors import InputError
from transformer.common.files import new_folder
from transformer.data.corpora.split import NumberedPair
from transformer.data.text.parallel import Corpus, Pair, read_lines, record_texts
from transformer.data.text.word_alignment import word_count
from transformer.quality.checks import characters, markup
from transformer.quality.corpus_checks import Checks
from transformer.settings.corpora import REPAIRS

# Faults that a summary names.
_NAMED = 3

Repair = Callable[[str, str], Pair]
"""Repairs the source and the target of a pair."""
Drop = Callable[[Iterable[Pair]], Iterator[Mapping[str, float] | None]]
"""Reads the pairs without faults; yields for each the numbers that reject it, or None."""


@dataclass
class CleanedSplit:
    """The result for a split."""

    files: tuple[str, ...]
    kept: int = 0
    rejected: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """Rejected pairs by fault; a pair may have several."""
    repaired: int = 0
    """Kept pairs that were repaired or, without ``repair``, could be."""
    repairs: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        (first, _), *_ = frequent = self.faults.most_common(_NAMED)
        faults = ", ".join(f"{name} {count:,}" for name, count in frequent)
        remedy = "raise keep=" if first == "cross_entropy" else f"set filters.{first}=false"
        return (
            f"{self.kept:,} of {self.kept + self.rejected:,} pairs kept ({faults}); look at some "
            f"with transformer doctor, and if they are good, {remedy}"
        )


def require_new_folder(folder: Path) -> None:
    """Raise InputError if a file, or a folder that is not empty, exists."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output={folder} is there already; name a new folder")


def clean(
    checks: Checks,
    names: Sequence[str],
    folder: Path,
    drop: Drop | None = None,
    *,
    repair: bool,
    repairs: Collection[str] = REPAIRS,
) -> dict[str, CleanedSplit]:
    """Write the kept and the rejected lines of some splits to a new folder, all or nothing.

    The ``repairs`` are made or, without ``repair``, only counted.
    """
    require_new_folder(folder)
    with new_folder(folder) as part:
        cleaned = {}
        for name in dict.fromkeys(names):
            reasons = drop and drop(_Cleaner(checks, name, repair, repairs).passing())
            cleaned[name] = _Cleaner(checks, name, repair, repairs).clean(
                part, reasons or repeat(None)
            )
        lost = [f"{name}: {split.summary()}" for name, split in cleaned.items() if split.faults]
        if lost and not any(split.kept for split in cleaned.values()):
            raise InputError(f"nothing is written: {'; '.join(lost)}")
    return cleaned


def choose_pairs(
    forward: Callable[[Sequence[Pair]], Iterable[float]],
    reverse: Callable[[Sequence[Pair]], Iterable[float]],
    keep: float,
    pairs: Iterable[Pair],
) -> Iterator[Mapping[str, float] | None]:
    """Reject all but the fraction ``keep`` with the lowest |H_A - H_B| + (H_A + H_B) / 2.

    H are the cross-entropies, in nats a token, of two models of inverse directions: dual
    conditional cross-entropy (Junczys-Dowmunt 2018, W18-6478). Memory holds them, not the pairs.
    """
    pairs = iter(pairs)
    entropies = array("d")
    while window := list(islice(pairs, 4096)):  # enough to be sorted into full batches
        swapped = [(target, source) for source, target in window]
        for both in zip(forward(window), reverse(swapped), strict=True):
            entropies.extend(both)
    first, second = np.array(entropies).reshape(-1, 2).T
    scores = np.abs(first - second) + (first + second) / 2
    is_bad = np.zeros(len(scores), bool)
    is_bad[np.argsort(scores, kind="stable")[round(keep * len(scores)) :]] = True
    for bad, *numbers in zip(is_bad, first, second, scores, strict=True):
        named = zip(("forward", "reverse", "score"), numbers, strict=True)
        # JSON has no infinity or NaN, as of a text that is too long for a model.
        yield {name: round(min(1e9, float(n)), 4) for name, n in named} if bad else None


class _Cleaner:
    """Cleans a split, which is a whole text; lines that separate documents are kept."""

    def __init__(self, checks: Checks, name: str, repair: bool, repairs: Collection[str]) -> None:
        self._split = checks.splits[name]
        if self._split.corpus.kind == "parquet":
            raise InputError(
                f"{self._split.location}: clean writes lines, not rows of Parquet; write the pairs "
                "to a .jsonl file and clean that"
            )
        self._enabled = checks.config.checks
        self._checks = checks.build(name)
        self._name = name
        self._pairs = checks.pairs
        self._steps = _steps(repairs)
        self._apply_repair = repair
        self._paths = [*self._split.corpus.paths, *filter(None, [self._split.links])]
        if self._split.links is not None:
            # Reads them once, so that wrong links are an error.
            deque(self._split.word_links(), maxlen=0)
        whole_text_checks = [check for check in self._checks if check.needs_all_pairs]
        if whole_text_checks:
            for pair in self._pairs(name):
                checked, _ = self._repaired(pair)
                for check in whole_text_checks:
                    check.see(checked)

    def passing(self) -> Iterator[Pair]:
        """Yield the pairs without faults, repaired."""
        checked = (self._repaired(pair)[0] for pair in self._pairs(self._name))
        return (pair.texts for pair in checked if not self._faults(pair))

    def _faults(self, pair: NumberedPair) -> list[str]:
        names = (name for check in self._checks for name in check.faults(pair))
        faults = [name for name in names if name in self._enabled]
        if not faults:
            for check in self._checks:
                check.keep(pair)
        return faults

    def clean(self, folder: Path, reasons: Iterator[Mapping[str, float] | None]) -> CleanedSplit:
        """Write the kept, the repaired and the rejected lines."""
        names = [path.name for path in self._paths] + [f"{self._name}.rejected.jsonl"]
        names += [f"{self._name}.repaired.jsonl"] * self._apply_repair
        done = CleanedSplit(tuple(names))
        with ExitStack() as stack:
            outputs = [_opened(folder / file, stack) for file in names]
            records = outputs[len(self._paths) :]
            for pair, lines in self._lines():
                if pair is not None:
                    checked, repairs = self._repaired(pair)
                    faults = self._faults(checked)
                    reason_fields = dict[str, object]()
                    if not faults:
                        reason = next(reasons)
                        if reason is not None:
                            faults = ["cross_entropy"]
                            reason_fields = {"cross_entropy": reason}
                    if faults:
                        done.rejected += 1
                        done.faults.update(faults)
                        records[0].write(_record(pair, {"faults": faults, **reason_fields}))
                        continue
                    done.kept += 1
                    done.repaired += bool(repairs)
                    done.repairs.update(repairs)
                    if self._apply_repair and repairs:
                        after = {"source": checked.source, "target": checked.target}
                        records[1].write(_record(pair, {"repairs": repairs}, after=after))
                        lines = _rewrite(lines, self._split.corpus, checked)
                for output, line in zip(outputs, lines, strict=False):
                    output.write(f"{line}\n".encode())
        return done

    def _lines(self) -> Iterator[tuple[NumberedPair | None, tuple[str, ...]]]:
        pairs = self._pairs(self._name)
        pair = next(pairs, None)
        files = (read_lines(path, self._split.corpus.max_line) for path in self._paths)
        for number, lines in enumerate(zip(*files, strict=True), start=1):
            if pair is not None and pair.line == number:
                yield pair, lines
                pair = next(pairs, None)
                if pair is not None and pair.line == number:
                    where = f"{self._paths[0]}:{number}"
                    raise InputError(f"{where}: it has several targets; clean one target a line")
            else:
                yield None, lines

    def _repaired(self, pair: NumberedPair) -> tuple[NumberedPair, list[str]]:
        """Return the pair to check and to write, and its repairs; none moves words of links."""
        source, *features = pair.source.split("\t", int(self._split.corpus.features is not None))
        texts = (source, pair.target)
        repairs = list[str]()
        for name, step in self._steps:
            if name in repairs:
                continue
            after = step(*texts)
            if after != texts:
                texts = after
                repairs.append(name)
        mended = pair._replace(source="\t".join([texts[0], *features]), target=texts[1])
        if self._split.links is not None and any(
            word_count(text) != word_count(before)
            for text, before in zip(mended.texts, pair.texts, strict=True)
        ):
            return pair, []
        return (mended if self._apply_repair else pair), repairs


def _opened(path: Path, stack: ExitStack) -> BufferedWriter:
    try:
        file = stack.enter_context(path.open("xb"))
    except FileExistsError as error:
        raise InputError(
            f"{path.name} is the name of two files; give them different names"
        ) from error
    if path.suffix != ".gz":
        return file
    # Without time and name, so that equal text makes equal files.
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    return stack.enter_context(BufferedWriter(packed))


def _rewrite(lines: tuple[str, ...], corpus: Corpus, pair: NumberedPair) -> tuple[str, ...]:
    if corpus.kind == "plain":
        return (*pair.texts, *lines[2:])
    if corpus.kind == "tsv":
        return ("\t".join(pair.texts), *lines[1:])
    if corpus.kind == "scan":
        return ("IN: {} OUT: {}".format(*pair.texts), *lines[1:])
    values = json.loads(lines[0])
    texts = record_texts(values, (corpus.source, corpus.target))
    target = [pair.target] if isinstance(texts[corpus.target], list) else pair.target
    texts |= {corpus.source: pair.source, corpus.target: target}
    # Half of a surrogate pair, in another key, has no other form than its escape.
    escapes = lines[0].isascii() or "\\ud" in lines[0].lower()
    return (json.dumps(values, ensure_ascii=escapes), *lines[1:])


def _record(pair: NumberedPair, reason: Mapping[str, object], **fields: object) -> bytes:
    values = {"line": pair.line, **reason, "source": pair.source, "target": pair.target, **fields}
    return (json.dumps(values, ensure_ascii=False) + "\n").encode()


def _steps(names: Collection[str]) -> list[tuple[str, Repair]]:
    """Return the repairs of both sides; without ftfy, encodings stay as they are."""
    steps: list[tuple[str, Repair]] = [
        ("encoding", _each(characters.undo_wrong_encoding)),
        # Decoding shows tags (&lt;b&gt;), which are text if there were others: <p>Write &lt;b&gt;.
        ("markup", markup.remove_tags),
        ("entities", markup.decode_entities),
        ("markup", markup.remove_tags),
        # A decoded entity may be one of these.
        ("invisible", _each(characters.remove_invisible)),
        ("blanks", _each(characters.normalize_blanks)),
    ]
    missing = "encoding" if find_spec("ftfy") is None else None
    return [(name, step) for name, step in steps if name in names and name != missing]


def _each(repair: Callable[[str], str]) -> Repair:
    return lambda source, target: (repair(source), repair(target))
