"""Models that benchmarks of translation measure: a trained tiny model, and a random base model.

Both read the same sentences in the same subwords. It does not know engines.
"""

import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from benchmarks.support.trained import Trained
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.checkpoint.run_directory import is_finished
from transformer.common.errors import InputError
from transformer.data.corpora.resolve import find_splits
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.build import build_transformer
from transformer.model.transformer import Transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.metrics import MetricsConfig

ROOT = Path(__file__).resolve().parents[2]
FORCED_LENGTH = 25
"""Pieces of every translation of the random model, near the mean of the trained one."""


@dataclass(frozen=True)
class Subject:
    """A model and what it shall translate.

    Attributes:
        name: ``tiny`` or ``base``.
        model: In evaluation mode.
        tokenizer: Its own.
        sources: Pieces of each sentence.
        references: Texts; none where the model knows nothing.
        metrics: How its run is scored.
        search: Beam search as all engines understand it.
    """

    name: str
    model: Transformer
    tokenizer: Tokenizer
    sources: list[list[int]]
    references: list[str] | None
    metrics: MetricsConfig
    search: SearchConfig

    def first(self, sentences: int) -> "Subject":
        """The same with fewer sentences."""
        references = None if self.references is None else self.references[:sentences]
        return replace(self, sources=self.sources[:sentences], references=references)


def trained(run: Path, sentences: int, beam: int) -> Subject:
    """A run's model on its test split; it must be what Marian is.

    The length penalty is ``average`` with an exponent of 1, the one form that all engines have.

    Raises:
        InputError: The run or its corpus cannot be read.
    """
    checkpoint = load_checkpoint(run)
    tokenizer = Tokenizer.from_state(checkpoint.portable.tokenizer)
    split = find_splits(checkpoint.config.data)["test"]
    pairs = list(islice((pair for pair in split if pair[0].strip()), sentences))
    search = replace(
        checkpoint.config.decoding,
        algorithm="beam",
        beam_size=beam,
        nbest=1,
        length_penalty=1.0,
        length_penalty_form="average",
        coverage_penalty=0.0,
        min_length=0,
        no_repeat_ngram=0,
        eos_threshold=0.0,
        stopping="full",
    )
    sources, references = zip(*pairs, strict=True)
    return Subject(
        "tiny",
        checkpoint.model,
        tokenizer,
        tokenizer.encode_source(sources),
        list(references),
        checkpoint.config.metrics,
        search,
    )


def random_base(tiny: Subject) -> Subject:
    """A model of the size of Vaswani et al. 2017, table 3, "base", with the tiny one's vocabulary.

    Random weights end nowhere: every translation has FORCED_LENGTH pieces.
    """
    config = replace(
        tiny.model.config,
        d_model=512,
        num_heads=8,
        ffn_dim=2048,
        encoder_layers=6,
        decoder_layers=6,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = build_transformer(config).eval()
    forced = replace(
        tiny.search, min_length=FORCED_LENGTH, max_length_ratio=0.0, max_length_offset=FORCED_LENGTH
    )
    return replace(tiny, name="base", model=model, references=None, search=forced)


def short_run(data_root: Path | None, steps: int) -> Path:
    """Train a post-norm tiny model for a short while, once; it need not be good, only not empty.

    Raises:
        InputError: The training failed.
    """
    corpus = "pocket"
    given = list[str]()
    if data_root is not None:
        corpus = "multi30k"
        given = ["experiment=multi30k_tiny", "loss=label_smoothed", "tokenizer.vocab_size=6000"]
        given.append(f"data.root={data_root.resolve()}")
    folder = ROOT / "runs" / "decoding" / f"{corpus}-{steps}"
    marian = ("model.norm_order=post", "model.positions=sinusoidal", "model.query_key_norm=false")
    settings = (*marian, "decoding=greedy", "optimizer.lr=2e-3")
    bounds = (f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps}")
    run = Trained((*given, *settings, "schedule.warmup=100", *bounds), folder)
    run.check()
    if is_finished(folder):
        return folder
    print(f"{folder}: {steps} updates …", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, *run.call], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{folder}:\n{done.stderr}")
    return folder
