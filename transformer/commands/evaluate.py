"""``evaluate``: the scores of a model on a text, as its task demands."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer.checkpoint.checkpoint import Loaded, portable_part, read_payload
from transformer.checkpoint.run_directory import checkpoint_file, find_checkpoint, is_ctranslate2
from transformer.checkpoint.trust import require_trust
from transformer.commands.scored_text import (
    changed_metrics,
    other_task,
    pairs_to_score,
    require_writable_output,
    text_name,
    text_to_score,
)
from transformer.commands.stress import save_stress
from transformer.common.errors import InputError
from transformer.data.corpora.evaluation_text import no_split
from transformer.data.corpora.resolve import AnySplit
from transformer.data.text.parallel import Referenced
from transformer.data.text.phrases import read_phrases
from transformer.data.text.word_alignment import WordLinks, read_links
from transformer.decoding.alignment import align
from transformer.decoding.constraints.request import Constraints
from transformer.decoding.device import find_device, suited_batch_tokens, suited_precision
from transformer.decoding.document_translator import in_documents
from transformer.decoding.long_inputs import warn_about_length_limit
from transformer.decoding.translator import Translator, length_counts, torch_engine
from transformer.evaluation.alignment_error import count_links
from transformer.evaluation.metrics import (
    Score,
    build_metric,
    score,
    term_accuracy,
    unspaced_warning,
)
from transformer.interchange.translators import load_translator, local_run, needs_run
from transformer.quality.failures.flags import Detector, Output
from transformer.quality.failures.monitor import Failures, as_outputs, find_failures
from transformer.quality.stress import StressReport, StressTest, disturbances_of
from transformer.quality.unknown_symbols import checked_symbols
from transformer.reports.scores import save_report
from transformer.settings.evaluation import EvaluateConfig
from transformer.settings.metrics import MetricsConfig
from transformer.tasks.registry import make_task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluated:
    """A model's scores on a text, and its output.

    Attributes:
        text: The name of the text.
        model: The checkpoint and, of a translator, the search; for people.
        scores: Of the metrics, then the term accuracy and the alignment error rate if asked for.
        hypotheses: One a sentence; None if the task produces no text.
        failures: Flags of hypotheses and references; None if the model does not translate.
        stress: Scores on disturbed text, if asked for.
    """

    text: str
    model: str
    scores: Sequence[Score]
    hypotheses: Sequence[str] | None
    failures: Failures | None = None
    stress: StressReport | None = None


Show = Callable[[Evaluated], object]


def evaluate(
    config: EvaluateConfig,
    show: Show = lambda evaluated: None,
    *,
    loaded: Loaded = lambda checkpoints: None,
) -> Evaluated:
    """Score a model; with ``output`` write the scores, hypotheses, failures and stress report.

    Args:
        config: The settings; InputError if they contradict each other or the checkpoint.
        show: Is called with the results before they are written or a stress test begins.
        loaded: As for ``load_translator``.
    """
    paths = [local_run(name) for name in config.checkpoints]
    task = other_task(paths, trusted=config.trust)
    if task is not None:
        return _evaluate_as_trained(config, paths[0], task, show)
    if config.alignment:
        _require_attention(config, paths)
    translator, run = load_translator(config, loaded=loaded)
    metrics = changed_metrics(config, run, config.checkpoint)
    names = list(dict.fromkeys([*(config.scores or metrics.tested), *config.own_metrics]))
    for name in names:
        build_metric(name, metrics)
    if config.alignment:
        translator.tokenizer.require_text("alignment=")
    split = text_to_score(config, run, config.checkpoint)
    pairs = pairs_to_score(split)
    _warn_about_tokenization(names, metrics, pairs)
    gold = _gold_links(config, split, run.data.features)
    if gold is not None and len(gold) != len(pairs):
        raise InputError("alignment of a text with several references is unknown; set alignment=")
    terms = _terms(config, len(pairs))
    constraints = None
    if terms is not None and config.constrain:
        constraints = [Constraints(must=line) for line in terms]
    require_writable_output(config)
    alignment_scores = [] if gold is None else _alignment_scores(translator, pairs, gold)
    sources, references = zip(*pairs, strict=True)
    deque(checked_symbols(sources, translator.tokenizer, lambda at: f"source {at + 1}"), maxlen=0)
    by_sentence = in_documents(translator)
    translations = by_sentence.translate(sources, constraints)
    warn_about_length_limit([length_counts(translations)])
    hypotheses = [translation.text for translation in translations]
    scores = score(hypotheses, references, names, config=metrics, sources=sources)
    if terms is not None:
        search = "free" if constraints is None else "must"
        scores.append(term_accuracy(hypotheses, terms, f"match:words|search:{search}"))
    # Flags compare an output with the source text.
    reads_files = translator.tokenizer.reads_files
    tags = translator.tokenizer.source_tags
    detector = None if reads_files else Detector.load(paths[0], run.data, tags)
    evaluated = Evaluated(
        text_name(config),
        _description(config, paths, translator),
        [*scores, *alignment_scores],
        hypotheses,
        _failures(detector, sources, references, as_outputs(translations, by_sentence)),
    )
    _show_and_save(evaluated, config.output, show)
    if config.stress:
        disturbances = disturbances_of(translator.tokenizer)
        report = StressTest(
            translator, detector, pairs, metrics, metrics.choose, disturbances=disturbances
        ).run()
        evaluated = replace(evaluated, stress=report)
        if config.output is not None:
            save_stress(config.output, report)
    return evaluated


def _require_attention(config: EvaluateConfig, paths: Sequence[Path]) -> None:
    if len(paths) > 1:
        raise InputError("alignment= is of the attention of one model; give one checkpoint")
    if config.engine == "ctranslate2" and is_ctranslate2(paths[0]):
        raise InputError(f"alignment= {needs_run(paths[0])}")


def _warn_about_tokenization(
    names: Sequence[str], metrics: MetricsConfig, pairs: Sequence[Referenced]
) -> None:
    if "bleu" in names:
        references = (references for _, references in pairs)
        warning = unspaced_warning(references, metrics.tokenize)
        if warning is not None:
            logger.warning(warning)


def _failures(
    detector: Detector | None,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    outputs: Sequence[Output],
) -> Failures | None:
    return None if detector is None else find_failures(detector, sources, references, outputs)


def _evaluate_as_trained(config: EvaluateConfig, path: Path, task: str, show: Show) -> Evaluated:
    """Score a tagger or a language model as the test of its run does."""
    if config.source is not None or config.reference is not None:
        raise InputError(
            f"source= and reference= are for text to text, but the checkpoint is of task={task}, "
            "which is scored on a split of its own corpus; give split=test or split=validation"
        )
    file = find_checkpoint(path)
    device = find_device(config.device)
    payload = read_payload(file)
    run = portable_part(payload).config
    require_trust(run, config.trust, file)
    require_writable_output(config)
    tokens = suited_batch_tokens(config.batch_tokens, device)
    trained = make_task(replace(run, data=replace(run.data, batch_tokens=tokens)), payload)
    if config.split not in trained.data.splits:
        raise no_split(config.split, list(trained.data.splits))
    evaluation = trained.evaluator(file, device)(config.split)
    evaluated = Evaluated(config.split, str(file), *evaluation)
    _show_and_save(evaluated, config.output, show)
    return evaluated


def _show_and_save(evaluated: Evaluated, folder: Path | None, show: Show) -> None:
    show(evaluated)
    if folder is not None:
        results = evaluated.scores, evaluated.hypotheses, evaluated.failures
        save_report(folder, evaluated.text, *results)


def _description(config: EvaluateConfig, paths: Sequence[Path], translator: Translator) -> str:
    files = [str(checkpoint_file(path)) for path in paths]
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


def _terms(config: EvaluateConfig, pairs: int) -> list[tuple[str, ...]] | None:
    """The terms of each pair, if they are counted."""
    if config.terms is None:
        return None
    terms = list(read_phrases(config.terms))
    if len(terms) != pairs or not any(terms):
        raise InputError(
            f"{config.terms} has {len(terms)} lines for {pairs} pairs, {sum(map(bool, terms))} of "
            "them with a term; give one line for each pair, empty where there is no term"
        )
    return terms


def _gold_links(
    config: EvaluateConfig, split: AnySplit, features: str | None
) -> list[WordLinks] | None:
    if not config.alignment:
        return None
    if config.alignment is not True:
        return list(read_links(config.alignment, split, features=features))
    if split.links is None:
        raise InputError(
            "the gold links of this text are not known; give alignment=FILE, a line such as "
            "0-0 1-2 for each pair"
        )
    return list(split.word_links())


def _alignment_scores(
    translator: Translator, texts: Sequence[Referenced], gold: Sequence[WordLinks]
) -> list[Score]:
    aligner = translator.aligner
    links = align(
        translator.model,
        translator.tokenizer,
        [(source, references[0]) for source, references in texts],
        head=aligner.head,
        near_best=aligner.near_best,
        batch_tokens=translator.batch_tokens,
    )
    triples = zip(links, (g.sure for g in gold), (g.possible for g in gold), strict=True)
    return count_links(triples).scores(f"npairs:{len(texts)}|{aligner.signature}")
