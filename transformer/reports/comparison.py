"""The report of a comparison: tables on stderr, and the same as a page of Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from sacrebleu.metrics.bleu import MAX_NGRAM_ORDER

from transformer.common.escaping import escaped_json
from transformer.common.files import write_text_whole
from transformer.evaluation.comparison import Comparison, MovedSentence, System
from transformer.evaluation.significance import SURE, TestedMetric, TestedScore
from transformer.reports.scores import build_table, shown, table_console
from transformer.settings.metrics import METRICS


@dataclass(frozen=True)
class _Table:
    """A table before it is drawn; the first columns are text, the rest numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    words: int = 1


def print_comparison(comparison: Comparison) -> None:
    """Show a comparison to people, on stderr."""
    console = table_console()
    for table in _tables(comparison):
        right = range(table.words, len(table.header))
        console.print(build_table(table.title, table.header, table.rows, right=right))
        for note in (*table.notes, ""):
            console.print(shown(note))
    for title, sentences in _moved(comparison):
        for line in (title, *chain(*sentences)):
            console.print(shown(line.rstrip()))


def save_comparison(folder: Path, comparison: Comparison) -> None:
    """Write ``comparison.json``, whole."""
    write_text_whole(folder / "comparison.json", format_comparison(comparison) + "\n")


def format_comparison(comparison: Comparison) -> str:
    """Write a comparison as JSON, without a last line end."""
    return escaped_json(comparison.to_json())


def letters(count: int) -> list[str]:
    """Short names of so many systems, whatever paths they have."""
    return [chr(ord("A") + n) if count <= 26 else f"S{n + 1}" for n in range(count)]


def _tables(comparison: Comparison) -> Iterator[_Table]:
    names = letters(len(comparison.systems))
    paths = list(zip(names, map(_described, comparison.systems), strict=True))
    text = f"{comparison.text.name}, {len(comparison.lines)} sentences"
    yield _Table(text, ("system", "is"), paths, words=2)
    for metric in comparison.metrics:
        yield _tested(metric, names)
    yield _by_length(comparison, names)
    if comparison.by_frequency is not None:
        title = "F1 (recall) of words by how often the training text has them"
        rows = []
        for bucket in comparison.by_frequency:
            matches = (f"{match.f1:.2f} ({match.recall:.2f})" for match in bucket.matches)
            rows.append((bucket.label, str(bucket.words), *matches))
        notes = (comparison.signatures["frequency"],)
        yield _Table(title, ("times", "words", *names), rows, notes)


def _described(system: System) -> str:
    averaged = system.about.get("weights") == "ema"
    return f"{system.name} (moving average of the weights, EMA)" if averaged else system.name


def _tested(metric: TestedMetric, names: Sequence[str]) -> _Table:
    header = ("system", metric.name, "95 % interval", "difference")
    scores = zip(names, metric.systems, strict=True)
    rows = [(name, *_columns(metric, score)) for name, score in scores]
    return _Table(
        f"{metric.name}{', lower is better' if metric.better == 'lower' else ''}",
        (*header, "p bootstrap", "p randomization", f"at p < {SURE}"),
        rows,
        [metric.signatures[test] for test in ("bootstrap", "randomization")],
    )


def _by_length(comparison: Comparison, names: Sequence[str]) -> _Table:
    buckets = comparison.by_length
    label = METRICS[comparison.chosen].label
    title = f"{label} by words of the source"
    if any(bucket.scores is None for bucket in buckets):
        title += f" (none where no reference has {MAX_NGRAM_ORDER} words)"
    rows = []
    for bucket in buckets:
        scores = [f"{score:.2f}" for score in bucket.scores or ()] or [""] * len(names)
        rows.append((bucket.label, str(bucket.sentences), *scores))
    return _Table(title, ("words", "sentences", *names), rows, (comparison.signatures["length"],))


def _columns(metric: TestedMetric, score: TestedScore) -> Sequence[str]:
    interval = f"{score.mean - score.interval:.2f} to {score.mean + score.interval:.2f}"
    first = (f"{score.score:.2f}", interval)
    if score.difference is None:
        return (*first, "", "", "", "base")
    p_values = (f"{p:.4f}" for p in (score.p_bootstrap, score.p_randomization))
    better = (score.difference > 0) == (metric.better == "higher")
    verdict = "not sure" if not score.is_sure else "better" if better else "worse"
    return (*first, f"{score.difference:+.2f}", *p_values, verdict)


def _moved(comparison: Comparison) -> Iterator[tuple[str, list[list[str]]]]:
    base, *names = letters(len(comparison.systems))
    for name, found in zip(names, comparison.movements, strict=True):
        counts = f"{found.better} better, {found.worse} worse, {found.same} equal"
        signature = comparison.signatures[found.by]
        heading = f"Sentences of {name} against {base}: {counts}"
        yield f"{heading} ({METRICS[found.by].label}, {signature})", []
        for way, sentences in (("better", found.most_better), ("worse", found.most_worse)):
            if sentences:
                yield (
                    f"Most {way} by {name}:",
                    [_lines(sentence, (base, name)) for sentence in sentences],
                )


def _lines(sentence: MovedSentence, names: tuple[str, str]) -> list[str]:
    texts = {"source": sentence.source, "reference": sentence.reference}
    lines = [*texts.items(), *zip(names, sentence.hypotheses, strict=True)]
    width = max(len(name) for name, _ in lines)
    names_last = sorted(sentence.scores.items(), reverse=True)
    scores = ", ".join(f"{METRICS[k].label} {a:.1f} to {b:.1f}" for k, (a, b) in names_last)
    hypothesis_texts = (f"  {name:{width}}  {text}" for name, text in lines)
    return [f"line {sentence.line}: {scores}", *hypothesis_texts, ""]
