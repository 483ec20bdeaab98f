"""All rows of benchmarks/gpu.py, the most wanted first.

A row is a table, a name, and a function of this folder that gets the bench and returns values, the
cells of its row. To add one, write ``Row("update", "base, my way", "updates:ours", {…})`` where it
is wanted. A module is imported when its first row runs: what is not installed fails its rows only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from benchmarks.gpu_rows.bench import Bench, Values


@dataclass(frozen=True)
class Row:
    """What is measured.

    Attributes:
        table: Of the page; the compiler is reset where it changes.
        name: Of the row in the table.
        function: ``MODULE:NAME`` in this folder.
        arguments: Of the function, after the bench.
    """

    table: str
    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compiles(self) -> bool:
        """Whether it is measured with torch.compile."""
        return bool(self.arguments.get("compiled"))

    def measure(self, bench: Bench) -> Values:
        """Its values."""
        module, _, name = self.function.partition(":")
        function = getattr(import_module(f"benchmarks.gpu_rows.{module}"), name)
        found: Values = function(bench, **self.arguments)
        return found


COMPILED: dict[str, dict[str, bool]] = {"eager": {}, "compiled": {"compiled": True}}
SENTENCES = (32, 256, 1024)
EFFICIENT = {"attention": "sdpa", "sdpa_backend": "efficient"}

ROWS = (
    Row("machine", "here", "kernels:machine"),
    Row("rates", "products, bfloat16", "kernels:products", {"dtype": "bfloat16"}),
    *(Row("update", f"base, {how}", "updates:ours", given) for how, given in COMPILED.items()),
    Row("update", "base, Hugging Face's Marian", "updates:marian"),
    Row("update", "base, torch.nn.Transformer", "updates:torch_transformer"),
    *(
        Row("update", f"big, {how}", "updates:ours", {"model": "big", **given})
        for how, given in COMPILED.items()
    ),
    *(
        Row("decode", f"{sentences} sentences, {whose}", f"searches:{function}", given)
        for whose, function, more in (
            ("eager", "beam", {}),
            ("Hugging Face", "hugging_face_beam", {}),
            ("eager, flags read at once", "beam", {"late": False}),
        )
        for sentences in SENTENCES
        for given in [{"sentences": sentences, **more}]
    ),
    *(
        Row("attention", f"{length}, {mask}", "kernels:attention", {"length": length, "mask": mask})
        for length in (16, 32, 64, 128, 512)
        for mask in ("padded", "causal")
    ),
    *(
        Row("loss", f"chunk {chunk or 'of all'}, {how}", "kernels:loss", {"chunk": chunk, **given})
        for how, given in COMPILED.items()
        for chunk in (32_768, 8192, 2048, 512, 0)
        if chunk or how == "eager"  # a loss without chunks is not compiled
    ),
    *(
        Row("choices", f"{choice}, {how}", "updates:ours", {**change, **given})
        for how, given in COMPILED.items()
        for choice, change in (("loss.chunk=8192", {"chunk": 8192}), ("efficient", EFFICIENT))
    ),
    Row("text", "made up", "runs:text"),
    Row("run", "base", "runs:run"),
    Row("compiled_run", "base", "runs:run", {"compiled": True}),
    *(
        Row("tokens", f"{tokens}, {how}", "updates:ours", {"tokens": tokens, **given})
        for how, given in COMPILED.items()
        for tokens in (12_500, 50_000, 4096, 100_000)
    ),
    *(Row("launches", how, "updates:launches", given) for how, given in COMPILED.items()),
    Row("rates", "products, float32", "kernels:products", {"dtype": "float32"}),
    Row("rates", "copies", "kernels:copies"),
    Row("shapes", "base", "updates:shapes"),
    Row("syncs", "base", "runs:syncs"),
    Row("oom", "base", "runs:oom"),
    Row("resume", "base", "processes:resume"),
    Row("ddp", "base", "processes:ddp"),
)
TABLES = tuple(dict.fromkeys(row.table for row in ROWS))
