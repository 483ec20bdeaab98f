"""Writes the good pairs of a text to files like its own, and the others with what is wrong.

Every pair goes to one of both. Knows files and verdicts; how a fault is found, the checks know, and
how one is mended, `Repair`.
"""

import gzip
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import BufferedWriter
from pathlib import Path

from transformer.common.errors import InputError
from transformer.common.files import given_path, written_whole
from transformer.data.config import DataConfig, check_unused_keys
from transformer.data.corpora.folder import as_files
from transformer.data.corpora.resolve import Split, find_corpus_splits
from transformer.data.quality.base import Check
from transformer.data.quality.cleaning.repair import Repair, Repaired
from transformer.data.quality.cleaning.rewriting import record, repaired_record, rewritten
from transformer.data.quality.factory import Checks
from transformer.data.quality.pair import NumberedPair
from transformer.data.text.parallel import Corpus, read_lines, rereadable
from transformer.data.text.word_alignment import word_count

# Of the faults that most pairs have.
_NAMED = 3
REJECTED, REPAIRED = "rejected.jsonl", "repaired.jsonl"


@dataclass(frozen=True)
class Cleaned:
    """What became of a split."""

    kept: int
    rejected: int
    reasons: Counter[str]
    """Pairs by what is wrong with them; one pair may have several faults."""
    repaired: int
    """Of the kept pairs; those that could be, where nothing is repaired."""
    repairs: Counter[str]
    """Such pairs by what is repaired."""
    files: tuple[str, ...]
    """Names of what was written."""

    def share_kept(self) -> str:
        """Say how much is kept, what most of the others have, and how to keep those."""
        (first, _), *_ = most = self.reasons.most_common(_NAMED)
        reasons = ", ".join(f"{name} {count:,}" for name, count in most)
        return (
            f"{self.kept:,} of {self.kept + self.rejected:,} pairs kept ({reasons}); look at some "
            f"with transformer doctor, and if they are good, set filters.{first}=false"
        )


class Verdict:
    """Says what is wrong with each pair of a text."""

    def __init__(self, checks: Sequence[Check], wanted: frozenset[str]) -> None:
        """Take checks, and the names of those faults that count."""
        self._checks, self._wanted = checks, wanted

    def prepare(self, pairs: Iterator[NumberedPair]) -> None:
        """Let those checks see the whole text that cannot judge a pair by itself."""
        whole = [check for check in self._checks if check.whole]
        if whole:
            for pair in pairs:
                for check in whole:
                    check.see(pair)

    def faults(self, pair: NumberedPair) -> list[str]:
        """Return the names of all that is wrong with a pair."""
        found = (name for check in self._checks for name in check.faults(pair))
        return [name for name in found if name in self._wanted]

    def keep(self, pair: NumberedPair) -> None:
        """Tell the checks that a pair is kept, before the next is judged."""
        for check in self._checks:
            check.keep(pair)


def given_texts(data: DataConfig) -> dict[str, Split]:
    """Return the texts of a corpus as their files hold them: nothing is drawn to be held out.

    Raises:
        InputError: there is no training text, or one that would not be read, or the corpus cannot
            be found.
    """
    check_unused_keys(data)
    if data.corpus == "folder":
        data = as_files(data)
    if data.corpus != "files":
        return find_corpus_splits(data)
    given = {"train": data.train, "validation": data.validation, "test": data.test}
    if data.train is None:
        raise InputError("data=files needs a text; set data.train=[SOURCE,TARGET] or one file")
    texts = {
        # No blank pairs are put between documents of JSONL: lines go out as they came in.
        name: Split(
            rereadable(Corpus.of(paths, data.source, data.target, max_line=data.max_line)),
            sentences=data.documents or 1,
        )
        for name, paths in given.items()
        if paths is not None
    }
    if data.alignment is not None:
        texts["train"] = replace(texts["train"], links=given_path(data.alignment))
    return texts


def clean(
    texts: Mapping[str, Split],
    names: Sequence[str],
    checks: Checks,
    wanted: frozenset[str],
    folder: Path,
    *,
    repair: bool,
) -> dict[str, Cleaned]:
    """Write the kept and the rejected lines of some splits to a new folder, all or nothing.

    Args:
        texts: all there are; "train" is among them.
        names: of those to clean.
        checks: of these texts.
        wanted: names of the faults that a kept pair does not have.
        folder: to make.
        repair: whether pairs are repaired before they are judged.

    Raises:
        InputError: the folder is there already or cannot be made, a name is unknown or none is
            given, a text cannot be read, or no pair is kept.
    """
    if not names:
        raise InputError(f"splits=[] leaves nothing to clean; choose of {', '.join(texts)}")
    for name in names:
        if name not in texts:
            raise InputError(f"splits={name} is not there; choose of {', '.join(texts)}")
    if folder.exists():
        raise InputError(f"output={folder} is there already; name a new folder")
    done, mend = {}, Repair()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(folder) as part:
            part.mkdir()
            for name in dict.fromkeys(names):
                own = checks.of(name) + (checks.leaks() if name == "train" else [])
                cleaner = _Cleaner(texts[name], Verdict(own, wanted), mend, repair)
                cleaner.prepare(checks.pairs(name))
                done[name] = cleaner.clean(name, checks.pairs(name), part)
            lost = [f"{name}: {one.share_kept()}" for name, one in done.items() if one.rejected]
            if lost and not any(one.kept for one in done.values()):
                raise InputError(f"nothing is written: {'; '.join(lost)}")
    except OSError as error:
        raise InputError(
            f"output={folder} cannot be written to ({error.strerror}); choose another"
        ) from error
    return done


class _Cleaner:
    """Cleans a split, which is a whole text.

    Lines that part documents are no pairs, and are all kept.
    """

    def __init__(self, split: Split, verdict: Verdict, mend: Repair, repair: bool) -> None:
        self._split, self._verdict, self._mend, self._repair = split, verdict, mend, repair
        self._paths = [*split.corpus.paths, *([] if split.links is None else [split.links])]
        if split.links is not None:
            # Says what is wrong with the links, and that there are as many lines as pairs.
            deque(split.word_links(), maxlen=0)

    def prepare(self, pairs: Iterator[NumberedPair]) -> None:
        """Let the checks see the pairs, as they are judged later."""
        self._verdict.prepare(map(self._judged, pairs))

    def clean(self, name: str, pairs: Iterator[NumberedPair], folder: Path) -> Cleaned:
        """Write the kept, the repaired and the rejected lines."""
        kept = rejected = repaired = 0
        reasons: Counter[str] = Counter()
        repairs: Counter[str] = Counter()
        names = [path.name for path in self._paths]
        names += [f"{name}.{REJECTED}", *([f"{name}.{REPAIRED}"] if self._repair else [])]
        with ExitStack() as stack:
            outputs = [_opened(folder / file, stack) for file in names]
            records = outputs[len(self._paths) :]
            pair = next(pairs, None)
            read = (read_lines(path, self._split.corpus.max_line) for path in self._paths)
            for number, lines in enumerate(zip(*read, strict=True), start=1):
                if pair is not None and pair.line == number:
                    given, pair = pair, next(pairs, None)
                    judged = self._judged(given)
                    if faults := self._verdict.faults(judged):
                        rejected += 1
                        reasons.update(faults)
                        records[0].write(record(given, {"faults": faults}))
                        continue
                    self._verdict.keep(judged)
                    kept += 1
                    mended = self._mended(given)
                    repaired += bool(mended.repairs)
                    repairs.update(mended.repairs)
                    if self._repair and mended.repairs:
                        records[1].write(repaired_record(given, mended))
                        lines = rewritten(lines, self._split.corpus, judged)
                for output, line in zip(outputs, lines, strict=False):
                    output.write(f"{line}\n".encode())
        return Cleaned(kept, rejected, reasons, repaired, repairs, tuple(names))

    def _mended(self, pair: NumberedPair) -> Repaired:
        mended = self._mend(pair)
        if self._split.links is not None and _tokens(pair) != _tokens(mended.pair):
            # The links would be of other words.
            return Repaired(pair, ())
        return mended

    def _judged(self, pair: NumberedPair) -> NumberedPair:
        return self._mended(pair).pair if self._repair else pair


def _tokens(pair: NumberedPair) -> tuple[int, int]:
    return word_count(pair.source), word_count(pair.target)


def _opened(path: Path, stack: ExitStack) -> BufferedWriter:
    try:
        file = stack.enter_context(path.open("xb"))
    except FileExistsError as error:
        raise InputError(
            f"{path.name} is the name of two files; give them different names"
        ) from error
    if path.suffix != ".gz":
        return file
    # No time and no name in it: equal text makes equal files.
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    return stack.enter_context(BufferedWriter(packed))
