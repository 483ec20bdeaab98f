"""Engines of translation behind one call: source subwords in, target subwords out.

Each may sort and batch the sentences as suits it best. None knows texts or the clock.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch

from transformer.common.processor import processor
from transformer.data.batching.batch import pad_source
from transformer.decoding.batched_search import search_batch
from transformer.decoding.batching import bucket_batches
from transformer.decoding.search.graphed_step import step_graphs
from transformer.model.layers.quantization import in_precision
from transformer.model.transformer import Transformer
from transformer.settings.decoding import SearchConfig
from transformer.settings.model import Precision
from transformer.settings.tokenizer import BOS, EOS, PAD

if TYPE_CHECKING:
    from benchmarks.support.translation_models import Subject

Pieces = Sequence[int]
Translate = Callable[[Sequence[Pieces], int], list[Pieces]]
"""Sentences and a batch size in the engine's own unit; the translations in the same order."""

SIZES = (8, 16, 32, 64, 128)
"""Sentences a batch, of Hugging Face."""

UNSORTED = "_unsorted"
"""Ends the search of what takes the sentences in the order of the file, as ``generate`` does."""


@dataclass(frozen=True)
class Engine:
    """One row of the table.

    Attributes:
        name: ``ours``, ``hf`` or ``ct2``.
        search: ``greedy`` or ``beamN``.
        precision: Of the weights.
        batch_sizes: Those to choose the best of.
        unit: What they count.
        translate: See ``Translate``.
    """

    name: str
    search: str
    precision: str
    batch_sizes: tuple[int, ...]
    unit: str
    translate: Translate

    @property
    def key(self) -> str:
        """As the JSON names it."""
        return f"{self.name}_{self.search}_{self.precision}"

    def sizes_for(self, sentences: int) -> tuple[int, ...]:
        """Those that so few sentences can tell apart."""
        if self.unit == "tokens":
            return self.batch_sizes
        return (
            tuple(size for size in self.batch_sizes if size < 2 * sentences) or self.batch_sizes[:1]
        )


def engines(subject: "Subject", threads: int, folder: Path) -> Iterator[Engine]:
    """All engines with the weights of the subject.

    Args:
        subject: Model and search.
        threads: For each of them.
        folder: Where to write the weights for CTranslate2.
    """
    from transformer.interchange.ctranslate2 import write_ctranslate2

    beam = subject.search
    greedy = replace(beam, algorithm="greedy", beam_size=1)
    searches = {"greedy": greedy, f"beam{beam.beam_size}": beam}
    exported = {precision: folder / precision for precision in ("float32", "int8")}
    for precision, path in exported.items():
        path.mkdir(parents=True)
        write_ctranslate2(subject.model, subject.tokenizer, path, precision)
    # Without these instructions bfloat16 takes several times as long as float32.
    narrow = processor().bfloat16
    precisions = set(get_args(Precision)) - (set() if narrow else {"bfloat16"})
    for name, search in searches.items():
        for precision in sorted(precisions):
            own = Ours(subject.model, precision, search)
            yield Engine("ours", name, precision, (2048, 4096, 8192), "tokens", own)
        for precision in sorted(precisions & {"float32", "bfloat16"}):
            translate = hugging_face(subject.model, getattr(torch, precision), search)
            yield Engine("hf", name, precision, SIZES, "sentences", translate)
        translate = hugging_face(subject.model, torch.float32, search, by_length=False)
        yield Engine("hf", f"{name}{UNSORTED}", "float32", SIZES, "sentences", translate)
        for precision, path in exported.items():
            translate = ctranslate2_engine(subject, path, precision, search, threads)
            yield Engine("ct2", name, precision, (512, 1024, 2048, 4096), "tokens", translate)


class Ours:
    """This framework; a batch has so many padded source tokens, counted once a hypothesis."""

    def __init__(self, model: Transformer, precision: Precision, search: SearchConfig) -> None:
        self.model = in_precision(deepcopy(model), precision)
        self.search = search
        device = next(self.model.parameters()).device
        self.graphs = step_graphs(self.model, device) if search.cuda_graphs else []

    @torch.inference_mode()
    def __call__(self, sources: Sequence[Pieces], batch_tokens: int) -> list[Pieces]:
        segments = [list(source) for source in sources]
        translations: list[Pieces] = [()] * len(sources)
        lengths = [(len(segment) + 1) * self.search.width for segment in segments]
        for indices in bucket_batches(lengths, batch_tokens):
            batch = [segments[index] for index in indices]
            results = search_batch(self.model, batch, self.search, graphs=self.graphs)
            for index, hypotheses in zip(indices, results, strict=True):
                translations[index] = hypotheses[0].tokens
        return translations


def hugging_face(
    model: Transformer, dtype: torch.dtype, search: SearchConfig, *, by_length: bool = True
) -> Translate:
    """``generate`` of the Marian twin; a batch has so many sentences, sorted by length or not.

    ``early_stopping=True`` is what the other two do: a sentence ends when the beam is full.
    """
    from benchmarks.support.marian_twin import marian

    twin: Any = marian(model)
    # As in the export: our searches never choose them.
    twin.final_logits_bias[:, [PAD, BOS]] = -1e4
    device = model.projection.weight.device
    twin.to(device, dtype)
    options: dict[str, Any] = {"do_sample": False, "num_beams": search.beam_size}
    if search.beam_size > 1:
        options |= {"early_stopping": True, "length_penalty": search.length_penalty}
    if search.min_length:
        options["min_new_tokens"] = search.min_length

    @torch.inference_mode()
    def translate(sources: Sequence[Pieces], size: int) -> list[Pieces]:
        order = list(range(len(sources)))
        if by_length:
            order.sort(key=lambda index: -len(sources[index]))
        found: list[Pieces] = [()] * len(sources)
        for start in range(0, len(order), size):
            indices = order[start : start + size]
            source = pad_source([sources[index] for index in indices]).to(device)
            # The end is one token more.
            longest = max(search.limit(len(sources[index])) for index in indices) + 1
            mask = (source != PAD).long()
            rows = twin.generate(source, attention_mask=mask, max_new_tokens=longest, **options)
            for index, row in zip(indices, rows.tolist(), strict=True):
                subwords = [subword for subword in row if subword not in (PAD, BOS, EOS)]
                found[index] = subwords[: search.limit(len(sources[index]))]
        return found

    return translate


def ctranslate2_engine(
    subject: "Subject",
    folder: Path,
    precision: str,
    search: SearchConfig,
    threads: int,
) -> Translate:
    """CTranslate2; a batch has so many source tokens.

    It is given pieces as it wants them, spelled, and what it says is spelled too; only a table
    look-up of ours is timed with it.
    """
    import ctranslate2

    engine = ctranslate2.Translator(
        str(folder), "cpu", compute_type=precision, inter_threads=1, intra_threads=threads
    )
    tokenizer = subject.tokenizer
    spelled = tokenizer.source_subwords(range(tokenizer.source_vocab_size))
    targets = tokenizer.subwords(range(tokenizer.target_vocab_size))
    ids = {subword: number for number, subword in enumerate(targets)}
    call = partial(
        engine.translate_batch,
        beam_size=search.beam_size,
        length_penalty=search.length_penalty,
        min_decoding_length=max(1, search.min_length),
        batch_type="tokens",
    )

    def translate(sources: Sequence[Pieces], batch_tokens: int) -> list[Pieces]:
        limits = [search.limit(len(source)) for source in sources]
        found = call(
            [[spelled[subword] for subword in source] for source in sources],
            max_batch_size=batch_tokens,
            max_decoding_length=max(limits) + 1,
        )
        return [
            [ids[subword] for subword in result.hypotheses[0][:limit]]
            for result, limit in zip(found, limits, strict=True)
        ]

    return translate
