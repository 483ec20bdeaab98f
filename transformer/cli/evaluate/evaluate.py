"""``evaluate``: score a checkpoint; JSON as sacreBLEU's on stdout, a table on stderr."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, ListConfig

from transformer.cli.config.compose import compose_config, resolve_path
from transformer.cli.exit import run_to_exit_code
from transformer.common.errors import InputError
from transformer.common.escaping import escaped
from transformer.common.files import given_path

if TYPE_CHECKING:
    from transformer.data.corpora.mixture import AnySplit
    from transformer.data.text.parallel import Pair
    from transformer.data.text.word_alignment import WordLinks
    from transformer.decoding.constraints.request import Constraints
    from transformer.decoding.translation.translator import Translator
    from transformer.evaluation.metrics import Score


def main(arguments: Sequence[str]) -> int:
    """Evaluate; returns the exit code."""
    return run_to_exit_code(lambda: _evaluate(compose_config("evaluate", arguments), arguments))


def _evaluate(config: DictConfig, arguments: Sequence[str]) -> None:
    task = _task(config)
    if task == "translation":
        _evaluate_translations(config, arguments)
    else:
        _evaluate_again(config, task)


def _task(config: DictConfig) -> str:
    from transformer.model.checkpoint.checkpoint import checkpoint_task, read_payload
    from transformer.model.checkpoint.locate import find_checkpoint, is_exported

    # An ensemble and an export are always of translators.
    path = resolve_path(config, "checkpoint")
    if isinstance(config.checkpoint, ListConfig) or is_exported(path):
        return "translation"
    return checkpoint_task(read_payload(find_checkpoint(path)))


def _writable(config: DictConfig) -> Path | None:
    """The folder of ``output=``; errors with it come before the evaluation."""
    from transformer.report.scores import require_writable

    if config.output is None:
        return None
    folder = resolve_path(config, "output")
    require_writable(folder)
    return folder


def _evaluate_again(config: DictConfig, task: str) -> None:
    """A tagger or a language model, as its run was tested."""
    from transformer.cli.load import resolve_positive
    from transformer.cli.models import resolve_device
    from transformer.common.schema import typed_value
    from transformer.report.scores import format_json
    from transformer.tasks.registry import evaluate_again

    if config.source is not None or config.reference is not None:
        raise InputError(
            f"source= and reference= are for translations, but the checkpoint is of task={task}, "
            "which is scored on a split of its own corpus; give split=test or split=validation"
        )
    scores = evaluate_again(
        resolve_path(config, "checkpoint"),
        config.split,
        output=_writable(config),
        device=resolve_device(config.device),
        batch_tokens=resolve_positive(config, "batch_tokens"),
        trusted=typed_value(config.trust, bool, "trust"),
    )
    print(format_json(scores))


def _evaluate_translations(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.evaluate.scored_text import (
        own_text,
        pairs_to_score,
        resolve_metrics,
        scored_split,
        text_name,
    )
    from transformer.cli.load import load_translator
    from transformer.decoding.translation.document_translator import in_documents
    from transformer.decoding.translation.length_limit import warn_about_length_limit
    from transformer.evaluation.metrics import score
    from transformer.report.scores import format_json, print_table, save_report

    translator, run = load_translator(config, arguments)
    metrics = resolve_metrics(config, run)
    split = own_text(config) or scored_split(config, run)
    pairs = pairs_to_score(split)
    gold = _gold_links(config, split)
    terms, constraints = _terms(config, len(pairs))
    output = _writable(config)
    aligned = [] if gold is None else _alignment_scores(translator, pairs, gold)
    found = in_documents(translator).translate([source for source, _ in pairs], constraints)
    warn_about_length_limit([translator.length_limit.pop_counts()])
    hypotheses = [translation.text for translation in found]
    scores = score(hypotheses, [reference for _, reference in pairs], config=metrics)
    scores += _term_scores(hypotheses, terms, constrained=constraints is not None) + aligned
    name = text_name(config)
    print(escaped(_description(config, translator)), file=sys.stderr)
    print_table(name, scores)
    print(format_json(scores))
    if output is not None:
        save_report(output, name, scores, hypotheses)


def _description(config: DictConfig, translator: "Translator") -> str:
    """The files and the search, in the words of the command line."""
    from transformer.cli.models import checkpoint_paths, resolve_file

    files = [str(resolve_file(path)) for path in checkpoint_paths(config.checkpoint)]
    search = translator.search
    words = [] if search.algorithm == "beam" else [f"decoding.algorithm={search.algorithm}"]
    if search.algorithm in ("beam", "diverse"):
        words.append(f"decoding.beam_size={search.beam_size}")
        words.append(f"decoding.length_penalty={search.length_penalty:g}")
    return f"{', '.join(files)}, {' '.join(words)}"


def _terms(
    config: DictConfig, pairs: int
) -> "tuple[list[tuple[str, ...]] | None, list[Constraints] | None]":
    """The terms of each pair, if they are counted; and as constraints of the search, if asked."""
    from transformer.common.schema import typed_value
    from transformer.data.text.phrases import read_phrases
    from transformer.decoding.constraints.request import Constraints

    constrain = typed_value(config.constrain, bool, "constrain")
    if config.terms is None:
        return None, None
    terms = list(read_phrases(resolve_path(config, "terms")))
    if len(terms) != pairs or not any(terms):
        raise InputError(
            f"{config.terms} has {len(terms)} lines for {pairs} pairs, {sum(map(bool, terms))} of "
            "them with a term; give one line for each pair, empty where there is no term"
        )
    return terms, [Constraints(must=line) for line in terms] if constrain else None


def _term_scores(
    hypotheses: "list[str]", terms: "list[tuple[str, ...]] | None", *, constrained: bool
) -> "list[Score]":
    from transformer.data.text.phrases import occurs
    from transformer.evaluation.term_accuracy import term_accuracy

    if terms is None:
        return []
    search = "must" if constrained else "free"
    return [term_accuracy(hypotheses, terms, occurs, f"match:words|search:{search}")]


def _gold_links(config: DictConfig, split: "AnySplit") -> "list[WordLinks] | None":
    """The gold links of each pair, if alignment is to be scored: from a file, or the split's."""
    from transformer.common.schema import typed_value
    from transformer.data.text.word_alignment import read_links

    alignment = typed_value(config.alignment, bool | str | None, "alignment")
    if not alignment:
        return None
    if alignment is not True:
        return list(read_links(given_path(alignment), split))
    if split.links is None:
        raise InputError(
            "the gold links of this text are not known; give alignment=FILE, a line such as "
            "0-0 1-2 for each pair"
        )
    return list(split.word_links())


def _alignment_scores(
    translator: "Translator", pairs: "list[Pair]", gold: "list[WordLinks]"
) -> "list[Score]":
    from transformer.decoding.alignment import align
    from transformer.evaluation.alignment_error import count_links

    links = align(
        translator.model,
        translator.tokenizer,
        pairs,
        head=translator.aligner.head,
        near_best=translator.aligner.near_best,
        batch_tokens=translator.batch_tokens,
    )
    triples = zip(links, (g.sure for g in gold), (g.possible for g in gold), strict=True)
    signature = f"npairs:{len(pairs)}|{translator.aligner.signature}"
    return count_links(triples).scores(signature)
