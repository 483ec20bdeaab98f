"""``evaluate``: score a checkpoint; a table on stderr, JSON as sacreBLEU's to a file or a pipe."""

import sys
from collections import deque
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.checkpoint.locate import checkpoint_file
from transformer.cli import translator as described
from transformer.cli.config.compose import checkpoint_paths, resolve_path, resolve_value
from transformer.cli.evaluate import scored_text
from transformer.cli.evaluate.stress import save_stress, stress_table
from transformer.common.errors import InputError
from transformer.common.escaping import escaped
from transformer.common.files import given_path
from transformer.data.corpora.mixture import AnySplit
from transformer.data.text.parallel import Referenced
from transformer.data.text.phrases import read_phrases
from transformer.data.text.word_alignment import WordLinks, read_links
from transformer.decoding.alignment import align
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.device import find_device, suited_batch_tokens, suited_precision
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.result import length_counts
from transformer.decoding.translation.translator import Translator, torch_engine
from transformer.evaluation.alignment_error import count_links
from transformer.evaluation.metrics import Score, build_metric, score, term_accuracy
from transformer.quality.failures.flags import Detector
from transformer.quality.failures.monitor import as_outputs, find_failures
from transformer.quality.stress import StressTest
from transformer.report.scores import (
    failures_table,
    format_json,
    print_json,
    print_table,
    save_report,
    table_console,
)
from transformer.report.unknown_symbols import checked_symbols


def run(config: DictConfig, arguments: Sequence[str]) -> None:
    """Score a model, as its task demands."""
    task, translates = scored_text.checkpoint_kind(config)
    if translates:
        _evaluate_translations(config, arguments)
    else:
        _evaluate_again(config, task)


def _evaluate_again(config: DictConfig, task: str) -> None:
    """A tagger or a language model, as its run was tested."""
    from transformer.tasks.registry import evaluate

    if config.source is not None or config.reference is not None:
        raise InputError(
            f"source= and reference= are for text to text, but the checkpoint is of task={task}, "
            "which is scored on a split of its own corpus; give split=test or split=validation"
        )
    device = find_device(resolve_value(config, "device", str))
    scores = evaluate(
        resolve_path(config, "checkpoint"),
        config.split,
        output=scored_text.writable_output(config),
        device=device,
        batch_tokens=suited_batch_tokens(resolve_value(config, "batch_tokens", int | None), device),
        trusted=resolve_value(config, "trust", bool),
    )
    print_json(format_json(scores))


def _evaluate_translations(config: DictConfig, arguments: Sequence[str]) -> None:
    stress = resolve_value(config, "stress", bool)
    translator, run = described.load(config, arguments)
    metrics = scored_text.resolve_metrics(config, run)
    names = resolve_value(config, "scores", Sequence[str] | None) or metrics.tested
    for metric in names:
        build_metric(metric, metrics)
    split = scored_text.own_text(config, run) or scored_text.scored_split(config, run)
    pairs = scored_text.pairs_to_score(split)
    gold = _gold_links(config, split)
    if gold is not None and len(gold) != len(pairs):
        raise InputError("alignment of a text with several references is unknown; set alignment=")
    terms, constraints = _terms(config, len(pairs))
    output = scored_text.writable_output(config)
    aligned = [] if gold is None else _alignment_scores(translator, pairs, gold)
    sources, references = zip(*pairs, strict=True)
    named = checked_symbols(sources, translator.tokenizer, lambda at: f"source {at + 1}")
    deque(named, maxlen=0)
    by_sentence = in_documents(translator)
    found = by_sentence.translate(sources, constraints)
    warn_about_length_limit([length_counts(found)])
    hypotheses = [translation.text for translation in found]
    scores = score(hypotheses, references, names, config=metrics, sources=sources)
    if terms is not None:
        search = "free" if constraints is None else "must"
        scores.append(term_accuracy(hypotheses, terms, f"match:words|search:{search}"))
    scores += aligned
    name = scored_text.text_name(config)
    print(escaped(_description(config, translator)), file=sys.stderr)
    print_table(name, scores)
    detector = Detector.load(checkpoint_paths(config)[0], run.data)
    failures = find_failures(detector, sources, references, as_outputs(found, by_sentence))
    table_console().print(failures_table(failures))
    print_json(format_json(scores))
    if output is not None:
        save_report(output, name, scores, hypotheses, failures)
    if stress:
        report = StressTest(translator, detector, pairs, metrics, metrics.choose).run()
        table_console().print(stress_table(name, report))
        save_stress(output, report)


def _description(config: DictConfig, translator: Translator) -> str:
    files = [str(checkpoint_file(path)) for path in checkpoint_paths(config)]
    search = translator.search
    words = [] if search.algorithm == "beam" else [f"decoding.algorithm={search.algorithm}"]
    if search.algorithm in ("beam", "diverse"):
        words.append(f"decoding.beam_size={search.beam_size}")
        words.append(f"decoding.length_penalty={search.length_penalty:g}")
    precision = suited_precision(config.precision, translator.device)
    if precision != "float32":
        words.append(f"precision={precision}")
    if translator.engine is not torch_engine:
        words.append("engine=ctranslate2")
    return f"{', '.join(files)}, {' '.join(words)}"


def _terms(
    config: DictConfig, pairs: int
) -> tuple[list[tuple[str, ...]] | None, list[Constraints] | None]:
    """The terms of each pair, if they are counted; and as constraints of the search, if asked."""
    constrain = resolve_value(config, "constrain", bool)
    if config.terms is None:
        return None, None
    terms = list(read_phrases(resolve_path(config, "terms")))
    if len(terms) != pairs or not any(terms):
        raise InputError(
            f"{config.terms} has {len(terms)} lines for {pairs} pairs, {sum(map(bool, terms))} of "
            "them with a term; give one line for each pair, empty where there is no term"
        )
    return terms, [Constraints(must=line) for line in terms] if constrain else None


def _gold_links(config: DictConfig, split: AnySplit) -> list[WordLinks] | None:
    alignment = resolve_value(config, "alignment", bool | str | None)
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
    translator: Translator, texts: list[Referenced], gold: list[WordLinks]
) -> list[Score]:
    model, tokenizer, aligner = translator.model, translator.tokenizer, translator.aligner
    links = align(
        model,
        tokenizer,
        [(source, references[0]) for source, references in texts],
        head=aligner.head,
        near_best=aligner.near_best,
        batch_tokens=translator.batch_tokens,
    )
    triples = zip(links, (g.sure for g in gold), (g.possible for g in gold), strict=True)
    return count_links(triples).scores(f"npairs:{len(texts)}|{aligner.signature}")
