"""Speed of a search over a shortlist, in turns with the same search over all tokens.

    python benchmarks/decoding/shortlist.py --run RUN [--batch-tokens 512 4096] [--turns 3]

RUN has ``shortlist.npz`` (``transformer shortlist checkpoint=RUN``); its test split is translated
in one thread. Where RUN/export/ctranslate2 is there, CTranslate2 is measured, too. Times are
processor time of whole calls from text to text, the shortest of the turns after the first.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.data.corpora.evaluation_text import read_texts, run_split
from transformer.decoding.search.shortlist import FILE
from transformer.decoding.translator import Translator, trained_with
from transformer.evaluation.metrics import score
from transformer.interchange.ctranslate2 import CTranslate2Engine
from transformer.model.layers.quantization import in_precision

SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"algorithm": "greedy", "beam_size": 1},
    "beam 5": {"beam_size": 5, "stopping": "full"},
}


def translators(run: Path, batch_tokens: int) -> Iterator[tuple[str, list[Translator]]]:
    """The name of each engine and search, and it without and with the shortlist."""
    for precision in ("float32", "int8"):
        checkpoint = load_checkpoint(run)
        trained = trained_with(checkpoint)
        model = in_precision(checkpoint.model, precision)
        for name, settings in SEARCHES.items():
            plain = replace(trained.search, **settings)
            whole = Translator(model, trained.tokenizer, plain, batch_tokens)
            short = replace(whole, search=replace(plain, shortlist=str(run / FILE)))
            yield f"ours, {precision}, {name}", [whole, short]
            folder = run / "export" / "ctranslate2"
            if precision == "float32" and folder.is_dir():
                engine = CTranslate2Engine(folder)
                pair = [replace(one, engine=engine) for one in (whole, short)]
                yield f"CTranslate2, float32, {name}", pair


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = load_checkpoint(options.run).config
    texts = read_texts(run_split(config.data, "test"))
    sources = texts.sources[: options.sentences]
    references = texts.references[: options.sentences]
    print(
        "| engine, search | batch_tokens | sentences/s | with shortlist | ratio | BLEU | with it |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for batch_tokens in options.batch_tokens:
        for name, pair in translators(options.run, batch_tokens):
            seconds: list[list[float]] = [[], []]
            outputs: list[list[str]] = [[], []]
            for _ in range(1 + options.turns):
                for index, translator in enumerate(pair):
                    start = time.process_time()
                    translations = translator.translate(sources)
                    seconds[index].append(time.process_time() - start)
                    outputs[index] = [one.text for one in translations]
            rates = [len(sources) / min(times[1:]) for times in seconds]
            [[whole], [short]] = (
                score(texts, references, ("bleu",), config=config.metrics, sources=sources)
                for texts in outputs
            )
            print(
                f"| {name} | {batch_tokens:,} | {rates[0]:.1f} | {rates[1]:.1f} | "
                f"{rates[1] / rates[0]:.2f} | {whole.value:.2f} | {short.value:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
