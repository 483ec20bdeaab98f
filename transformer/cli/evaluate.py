"""``evaluate``: score a checkpoint; sacreBLEU's JSON on stdout, a table on stderr."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of
from transformer.errors import InputError


def main(arguments: Sequence[str]) -> int:
    """Evaluate; returns the exit code."""
    return exit_code_of(lambda: _evaluate(compose_config("evaluate", arguments), arguments))


def _evaluate(config: DictConfig, arguments: Sequence[str]) -> None:
    from transformer.cli.load import load_translator
    from transformer.evaluation.metrics import score
    from transformer.evaluation.report import format_json, print_table, save_report

    translator, run = load_translator(config, arguments)
    sources, references = _text(config, run)
    hypotheses = [translation.text for translation in translator.translate(sources)]
    scores = score(hypotheses, references)
    name = config.split if config.source is None else Path(config.source).name
    if config.output is not None:
        save_report(Path(config.output), name, scores, hypotheses)
    print_table(name, scores)
    print(format_json(scores))


def _text(config: DictConfig, run: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Sources and references: two files of the user's, or a split of the run's corpus."""
    if (config.source is None) != (config.reference is None):
        raise InputError("source=FILE and reference=FILE go together; give both or neither")
    if config.source is not None:
        from transformer.data.corpus import Corpus

        pairs = list(Corpus.of([config.source, config.reference], "source", "reference"))
        return [source for source, _ in pairs], [reference for _, reference in pairs]
    from transformer.data.config import DataConfig
    from transformer.data.splits import find_splits

    splits = find_splits(DataConfig(**run["data"]))
    if config.split not in splits or config.split == "train":
        raise InputError(
            f"split={config.split} is not there to evaluate on; choose one of "
            f"{', '.join(name for name in splits if name != 'train')}, or give source= and "
            "reference="
        )
    pairs = list(splits[config.split])
    return [source for source, _ in pairs], [reference for _, reference in pairs]
