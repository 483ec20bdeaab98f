"""All rows of ``python -m benchmarks.gpu``, the most wanted first, and the tables they fill.

To add a row, append ``Row("update", "base, my way", "updates:ours", {…})`` where it is wanted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.gpu.measure import Row
from benchmarks.support.records import markdown

UNMEASURED = "not measured yet"
COMPILED: dict[str, dict[str, bool]] = {"eager": {}, "compiled": {"compiled": True}}
GRAPHS = {"compiled": True, "graphs": True}
CHOICES: dict[str, dict[str, Any]] = {
    "loss.chunk=8192": {"chunk": 8192},
    "efficient": {"attention": "sdpa", "sdpa_backend": "efficient"},
}
FEW_AND_MANY = (32, 1024)
COUNTS = (32, 256, 1024)
SEARCHES: dict[str, tuple[str, dict[str, bool], tuple[int, ...]]] = {
    "eager": ("searches:search", {}, COUNTS),
    "graphs": ("searches:search", {"graphs": True}, FEW_AND_MANY),
    "Hugging Face": ("searches:hugging_face_beam", {}, COUNTS),
    "greedy, eager": ("searches:search", {"greedy": True}, FEW_AND_MANY),
    "greedy, graphs": ("searches:search", {"greedy": True, "graphs": True}, FEW_AND_MANY),
    "eager, flags read at once": ("searches:search", {"late": False}, COUNTS),
}
"""The function of an engine, its options, and numbers of sentences."""


def _profiles() -> list[Row]:
    """Where the time goes, which any change begins with."""
    rows = [Row("profile", "an update, base, eager", "traces:update", {"model": "base"})]
    for graphs in (False, True):
        for count in FEW_AND_MANY:
            name = f"a step, {count} sentences{', graphs' * graphs}"
            arguments = {"sentences": count, "graphs": graphs}
            rows.append(Row("profile", name, "traces:search", arguments))
    for model, options in (("base", COMPILED["compiled"]), ("base", GRAPHS), ("big", GRAPHS)):
        name = f"an update, {model}, {', '.join(options)}"
        rows.append(Row("profile", name, "traces:update", {"model": model, **options}))
    return rows


def _first_rows() -> list[Row]:
    """What most readers want to know."""
    rows = [
        Row("machine", "here", "operations:machine"),
        Row("rates", "products, bfloat16", "operations:products", {"dtype": "bfloat16"}),
    ]
    for mode, compiled in COMPILED.items():
        rows.append(Row("update", f"base, {mode}", "updates:ours", compiled))
    rows.append(Row("update", "base, graphs", "updates:ours", {"graphs": True}))
    rows.append(Row("update", "base, compiled, graphs", "updates:ours", GRAPHS))
    rows.append(Row("update", "base, Hugging Face's Marian", "updates:marian"))
    rows.append(Row("update", "base, torch.nn.Transformer", "updates:torch_transformer"))
    for mode, compiled in COMPILED.items():
        rows.append(Row("update", f"big, {mode}", "updates:ours", {"model": "big", **compiled}))
    rows.append(Row("update", "big, compiled, graphs", "updates:ours", {"model": "big", **GRAPHS}))
    for engine, (function, options, counts) in SEARCHES.items():
        for count in counts:
            arguments = {"sentences": count, **options}
            rows.append(Row("decode", f"{count} sentences, {engine}", function, arguments))
    return rows


def _operations() -> list[Row]:
    """Kernels of attention, products in float8 and the loss by themselves."""
    rows: list[Row] = []
    for length in (16, 32, 64, 128, 512):
        for mask in ("padded", "causal"):
            name = f"{length}, {mask}"
            settings = {"length": length, "mask": mask}
            rows.append(Row("attention", name, "operations:attention", settings))
    for backend in ("cudnn", "efficient"):
        rows.append(Row("planning", backend, "operations:planning", {"backend": backend}))
    for inputs, outputs in ((1024, 4096), (4096, 1024), (1024, 32_000)):
        sizes = {"inputs": inputs, "outputs": outputs}
        rows.append(Row("float8", f"{inputs} to {outputs}", "operations:float8", sizes))
    for mode, compiled in COMPILED.items():
        chunks = [32_768, 8192, 2048, 512]
        if mode == "eager":
            chunks.append(0)  # a loss without chunks is not compiled
        for chunk in chunks:
            name = f"chunk {chunk or 'of all'}, {mode}"
            rows.append(Row("loss", name, "operations:loss", {"chunk": chunk, **compiled}))
    return rows


def _later_rows() -> list[Row]:
    rows: list[Row] = []
    for mode, compiled in COMPILED.items():
        for choice, change in CHOICES.items():
            rows.append(Row("choices", f"{choice}, {mode}", "updates:ours", {**change, **compiled}))
    rows += [
        Row("text", "made up", "runs:text"),
        Row("run", "base", "runs:run"),
        Row("compiled_run", "base", "runs:run", {"compiled": True}),
    ]
    for mode, compiled in COMPILED.items():
        for tokens in (12_500, 50_000, 4096, 100_000):
            arguments = {"tokens": tokens, **compiled}
            rows.append(Row("tokens", f"{tokens}, {mode}", "updates:ours", arguments))
    for mode, compiled in COMPILED.items():
        rows.append(Row("launches", mode, "updates:launches", compiled))
    rows += [
        Row("rates", "products, float32", "operations:products", {"dtype": "float32"}),
        Row("rates", "copies", "operations:copies"),
        Row("shapes", "base", "updates:shapes"),
        Row("syncs", "base", "runs:syncs"),
        Row("oom", "base", "runs:oom"),
        Row("resume", "base", "runs:resume"),
        Row("ddp", "base", "runs:ddp"),
        Row("ddp", "base, gradients in bfloat16", "runs:ddp", {"narrow": True}),
    ]
    return rows


ROWS = (*_profiles(), *_first_rows(), *_operations(), *_later_rows())
TABLES = tuple(dict.fromkeys(row.table for row in ROWS))


def tables(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The tables of the page, in the order of ``ROWS``; the last lists rows without numbers."""
    kept = {(line["table"], line["row"]): line for line in lines}
    shown: list[str] = []
    missing = []
    for name in TABLES:
        cells = []
        for row in ROWS:
            if row.table != name:
                continue
            line = kept.get((name, row.name), {"why": UNMEASURED})
            if "why" in line:
                missing.append([name, row.name, _cell(line["why"])])
            else:
                cells.append({name: row.name, **line["values"]})
        if cells:
            shown += [*_table(cells), ""]
    if missing:
        shown += markdown(["table", "row", "no numbers"], missing)
    return shown


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Columns are the keys of all rows; a single row becomes a table of two columns."""
    if len(rows) == 1:
        (name, title), *cells = rows[0].items()
        return markdown([name, _cell(title)], [[key, _cell(value)] for key, value in cells])
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return markdown(columns, [[_cell(row.get(column, "")) for column in columns] for row in rows])


def _cell(value: Any) -> str:
    """A float has three digits, or no decimals from 100 on."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
