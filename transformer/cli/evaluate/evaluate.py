"""``evaluate``: score a checkpoint; JSON as sacreBLEU's on stdout, a table on stderr."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


_OF_TRANSLATIONS = (
    *("source", "reference", "alignment", "alignment_head", "alignment_threshold"),
    *("heads_off", "terms", "constrain", "averaging", "precision", "to", "tag"),
    *("tokenize", "lowercase"),
)


def main(arguments: Sequence[str]) -> int:
    """Evaluate; returns the exit code."""
    return run_to_exit_code(lambda: _evaluate(compose_config("evaluate", arguments), arguments))


def _evaluate(config: DictConfig, arguments: Sequence[str]) -> None:
    # An ensemble can only be of translators.
    several = isinstance(config.checkpoint, ListConfig)
    task = "translation" if several else _task(resolve_path(config, "checkpoint"))
    if task == "translation":
        _evaluate_translations(config, arguments)
    else:
        _evaluate_again(config, arguments, task)


def _task(path: Path) -> str:
    from transformer.interchange.safetensors import is_exported
    from transformer.model.checkpoint.checkpoint import checkpoint_task, read_payload
    from transformer.model.checkpoint.locate import find_checkpoint

    if is_exported(path):
        return "translation"
    return checkpoint_task(read_payload(find_checkpoint(path)))


def _writable(config: DictConfig) -> Path | None:
    """The folder of ``output=``, tried before what shall lie there is computed."""
    from transformer.report.scores import require_writable

    if config.output is None:
        return None
    folder = resolve_path(config, "output")
    require_writable(folder)
    return folder


def _evaluate_again(config: DictConfig, arguments: Sequence[str], task: str) -> None:
    """A tagger or a language model, as its run was tested."""
    from transformer.cli.load import resolve_batch_tokens
    from transformer.cli.models import resolve_device
    from transformer.common.schema import typed_value
    from transformer.report.scores import format_json
    from transformer.tasks.registry import evaluate_again

    idle = [
        f"{key}={config[key]}"
        for key in _OF_TRANSLATIONS
        if config[key] not in (None, False, "float32")
    ]
    idle += [argument for argument in arguments if argument.startswith("decoding")]
    if idle:
        raise InputError(
            f"{idle[0]} is for translations, but the checkpoint is of task={task}, which is "
            "scored on a split of its own corpus; give split=test or split=validation"
        )
    scores = evaluate_again(
        resolve_path(config, "checkpoint"),
        config.split,
        output=_writable(config),
        device=resolve_device(config.device),
        batch_tokens=resolve_batch_tokens(config),
        trusted=typed_value(config.trust, bool, "trust"),
    )
    print(format_json(scores))


def _evaluate_translations(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.evaluate.scored_text import pairs_to_score, resolve_metrics, text_name
    from transformer.cli.load import check_nbest, load_translator
    from transformer.data.text.phrases import occurs
    from transformer.decoding.translation.document_translator import in_documents
    from transformer.decoding.translation.length_limit import warn_about_length_limit
    from transformer.evaluation.metrics import score
    from transformer.evaluation.term_accuracy import term_accuracy
    from transformer.report.scores import format_json, print_table, save_report

    check_scoring(config)
    translator, run = load_translator(config, arguments)
    check_nbest(arguments, translator.search, "leave it out")
    metrics = resolve_metrics(config, run)
    split = _split(config, arguments, run)
    pairs = pairs_to_score(split)
    gold = _gold_links(config, split)
    terms, constraints = _terms(config, len(pairs))
    output = _writable(config)
    aligned = [] if gold is None else _alignment_scores(translator, pairs, gold)
    found = in_documents(translator).translate([source for source, _ in pairs], constraints)
    warn_about_length_limit([translator.length_limit.pop_counts()])
    hypotheses = [translation.text for translation in found]
    scores = score(hypotheses, [reference for _, reference in pairs], config=metrics)
    if terms is not None:
        asked = "must" if constraints else "free"
        scores.append(term_accuracy(hypotheses, terms, occurs, f"match:words|search:{asked}"))
    scores += aligned
    name = text_name(config)
    print(escaped(_evaluated(config, translator)), file=sys.stderr)
    print_table(name, scores)
    print(format_json(scores))
    if output is not None:
        save_report(output, name, scores, hypotheses)


def _evaluated(config: DictConfig, translator: "Translator") -> str:
    """Which files, and which search, in the words of the command line."""
    from transformer.cli.models import resolve_file

    several = isinstance(config.checkpoint, ListConfig)
    names = config.checkpoint if several else [config.checkpoint]
    files = [str(resolve_file(given_path(str(name)))) for name in names]
    search = translator.search
    words = [] if search.algorithm == "beam" else [f"decoding.algorithm={search.algorithm}"]
    if search.algorithm in ("beam", "diverse"):
        words.append(f"decoding.beam_size={search.beam_size}")
        words.append(f"decoding.length_penalty={search.length_penalty:g}")
    return f"{', '.join(files)}, {' '.join(words)}"


def check_scoring(config: DictConfig) -> None:
    """Refuse keys of what is not counted.

    Raises:
        InputError: One is given.
    """
    from transformer.cli.load import check_unused_settings

    if config.constrain and config.terms is None:
        raise InputError("constrain=true does nothing alone; set terms=FILE too")
    if not config.alignment:
        check_unused_settings(config, ("alignment_head", "alignment_threshold"), "alignment=true")


def _split(config: DictConfig, arguments: Sequence[str], run: dict[str, Any]) -> "AnySplit":
    """Sources and references: two files of the user's, or a split of the run's corpus."""
    from transformer.cli.evaluate.scored_text import own_text, scored_split
    from transformer.cli.load import check_unused_settings

    if (own := own_text(config, arguments)) is not None:
        return own
    check_unused_settings(config, ("to", "tag"), "source=FILE reference=FILE")
    return scored_split(config, run)


def _terms(
    config: DictConfig, pairs: int
) -> "tuple[list[tuple[str, ...]] | None, list[Constraints] | None]":
    """The terms of each pair, if they are counted; and as constraints, if the search shall obey."""
    from transformer.common.schema import typed_value
    from transformer.data.text.phrases import read_phrases
    from transformer.decoding.constraints.request import Constraints

    constrain = typed_value(config.constrain, bool, "constrain")
    if config.terms is None:
        return None, None
    terms = list(read_phrases(resolve_path(config, "terms")))
    if len(terms) != pairs:
        raise InputError(
            f"{config.terms} has {len(terms)} lines for {pairs} pairs; give one line for each, "
            "empty where there is no term"
        )
    if not any(terms):
        raise InputError(f"{config.terms}: there is no term to look for; give at least one")
    return terms, [Constraints(must=line) for line in terms] if constrain else None


def _gold_links(config: DictConfig, split: "AnySplit") -> "list[WordLinks] | None":
    """The right links of each pair, if alignment is to be scored: from a file, or the split's."""
    from transformer.common.schema import typed_value
    from transformer.data.text.word_alignment import read_links

    alignment = typed_value(config.alignment, bool | str | None, "alignment")
    if not alignment:
        return None
    if alignment is not True:
        return list(read_links(given_path(alignment), split))
    if split.links is None:
        raise InputError(
            "the right links of this text are not known; give alignment=FILE, a line such as "
            "0-0 1-2 for each pair"
        )
    return list(split.word_links())


def _alignment_scores(
    translator: "Translator", pairs: "list[Pair]", gold: "list[WordLinks]"
) -> "list[Score]":
    from transformer.decoding.forced.alignment import align
    from transformer.evaluation.alignment_error import count_links

    links = align(
        translator.model,
        translator.tokenizer,
        pairs,
        aligner=translator.aligner,
        batch_tokens=translator.batch_tokens,
    )
    triples = zip(links, (g.sure for g in gold), (g.possible for g in gold), strict=True)
    signature = f"npairs:{len(pairs)}|{translator.aligner.signature}"
    return count_links(triples).scores(signature)
