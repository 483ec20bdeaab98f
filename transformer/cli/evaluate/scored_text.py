"""The text that a verb scores on, and how: what its keys mean, from ``split`` to ``lowercase``.

It does not know what is scored on the text, nor what the scores are for.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from transformer.cli.config.compose import config_folder, resolve_path
from transformer.common.errors import InputError, MissingFile
from transformer.evaluation.run_text import found_in_run, run_splits

if TYPE_CHECKING:
    from transformer.data.corpora.mixture import AnySplit
    from transformer.data.corpora.resolve import Split
    from transformer.data.text.parallel import Pair
    from transformer.evaluation.metrics import MetricsConfig


def own_text(config: DictConfig, arguments: Sequence[str]) -> "Split | None":
    """The user's two files, if they are given.

    Raises:
        InputError: Only one is, they are no text, or a split is given too.
    """
    from transformer.data.corpora.resolve import Split
    from transformer.data.text.parallel import Corpus

    if (config.source is None) != (config.reference is None):
        raise InputError("source=FILE and reference=FILE go together; give both or neither")
    if config.source is None:
        return None
    for argument in arguments:
        if argument.startswith("split="):
            raise InputError(f"{argument} does nothing beside source=FILE; leave one out")
    files = [resolve_path(config, key) for key in ("source", "reference")]
    return Split(Corpus.of(files, "source", "reference"))


def scored_split(config: DictConfig, run: Mapping[str, Any]) -> "AnySplit":
    """The split of the run's corpus that is named; what a run learnt from says little.

    Raises:
        InputError: The corpus is not there, or has no such split to score on.
    """
    require_trusted(config, run)
    with _or_own_text():
        splits = run_splits(run["data"])
    known = [name for name in splits if not name.startswith("train")]
    if config.split not in known:
        raise InputError(
            f"split={config.split} is not there to evaluate on; choose one of "
            f"{', '.join(known)}, or give source= and reference="
        )
    with _or_own_text():
        return found_in_run(splits[config.split])


@contextmanager
def _or_own_text() -> Iterator[None]:
    """Say where the text of a run is missing that another may be given."""
    try:
        yield
    except MissingFile as error:
        raise MissingFile(f"{error}, or give source=FILE and reference=FILE") from error


def require_trusted(config: DictConfig, run: Mapping[str, Any]) -> None:
    """Refuse text that the checkpoint names outside of the working folder, without a yes.

    Raises:
        InputError: It names some, and the command does not say ``trust=true``.
    """
    from transformer.common.schema import typed_value
    from transformer.data.corpora.trust import require_trust

    trusted = typed_value(config.get("trust", False), bool, "trust")
    require_trust(run["data"], trusted, config.get("checkpoint", "a run"))


def pairs_to_score(split: "AnySplit") -> "list[Pair]":
    """All pairs of a text.

    Raises:
        InputError: It cannot be read, or has none.
    """
    if pairs := list(split):
        return pairs
    raise InputError(f"{split.location}: there is no line to score; give a text that has one")


def text_name(config: DictConfig) -> str:
    """How reports call what is scored."""
    return str(config.split) if config.source is None else resolve_path(config, "source").name


def resolve_metrics(config: DictConfig, run: Mapping[str, Any] | None) -> "MetricsConfig":
    """The run's own, and raw text's without a run; ``tokenize=`` and ``lowercase=`` change it.

    Raises:
        InputError: sacreBLEU has no such tokenizer, or a value has the wrong type.
    """
    from transformer.common.schema import typed
    from transformer.evaluation.metrics import MetricsConfig

    plain = OmegaConf.load(config_folder() / "metrics" / "detokenised.yaml")
    known: Any = OmegaConf.to_container(plain) if run is None else run["metrics"]
    given = {key: config[key] for key in ("tokenize", "lowercase") if config[key] is not None}
    return typed(MetricsConfig, {**known, **given}, "metrics")
