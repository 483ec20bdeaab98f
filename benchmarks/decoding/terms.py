"""Accuracy and cost of terms that must occur: searches with and without them.

    python benchmarks/decoding/terms.py --run RUN [--split validation] [--first 200] [--pairs 200]
        [--seed 1]

One or two random words of at least four letters are taken from each reference. The last line of
stdout is JSON: BLEU, share of the terms that are there, and seconds, of the free search and of the
constrained one.
"""

import argparse
import json
import random
import re
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.translator import Translator
from transformer.evaluation.metrics import score, term_accuracy
from transformer.settings.metrics import MetricsConfig

WORD = re.compile(r"\w{4,}")


def terms_of(references: list[str], seed: int) -> list[tuple[str, ...]]:
    """One or two words of each; none of a reference that has no long word."""
    rng = random.Random(seed)
    chosen = []
    for reference in references:
        words = sorted(set(WORD.findall(reference)))
        chosen.append(tuple(rng.sample(words, min(len(words), rng.choice((1, 2))))))
    return chosen


def measure(
    translator: Translator,
    pairs: list[tuple[str, str]],
    terms: list[tuple[str, ...]],
    metrics: MetricsConfig,
    *,
    must: bool,
) -> dict[str, Any]:
    """Translate, with the terms as constraints or without."""
    requests = [Constraints(must=phrases) if must else None for phrases in terms]
    began = time.perf_counter()
    hypotheses = [
        translation.text
        for translation in translator.translate([source for source, _ in pairs], requests)
    ]
    seconds = time.perf_counter() - began
    (bleu,) = score(hypotheses, [reference for _, reference in pairs], ("bleu",), config=metrics)
    accuracy = term_accuracy(hypotheses, terms, f"constrain:{'yes' if must else 'no'}")
    return {
        "BLEU": round(bleu.value, 2),
        "terms": round(accuracy.value, 2),
        "seconds": round(seconds, 2),
        "signatures": [bleu.signature, accuracy.signature],
    }


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--first", type=int, default=0, help="pairs to pass over")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        run = load_checkpoint(arguments.run).config
        translator = Translator.load(arguments.run)
        split = find_splits(run.data)[arguments.split]
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    pairs = list(islice(split, arguments.first, arguments.first + arguments.pairs))
    terms = terms_of([reference for _, reference in pairs], arguments.seed)
    # What is made once is none of theirs.
    translator.translate([source for source, _ in pairs[:10]])
    free = measure(translator, pairs, terms, run.metrics, must=False)
    constrained = measure(translator, pairs, terms, run.metrics, must=True)
    print(json.dumps({"free": free, "constrained": constrained}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
