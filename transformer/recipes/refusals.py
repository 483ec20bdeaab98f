"""What is refused of a call before anything begins, because no recipe, or not this one, can do it.

It composes nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.model.checkpoint.checkpoint import PORTABLE, read_payload
from transformer.recipes.overrides import key_of, override
from transformer.recipes.stage import Stage
from transformer.runs.finetuning import other_model

OWNED = (
    *("hydra.", "checkpoint", "finetune_from", "input", "output", "source", "reference", "format"),
    *("data.corpus", "data.corpora", "data.train", "data.validation", "data.test"),
    *("data.source", "data.target", "data.root", "data.alignment", "data.streaming"),
    *("data.validation_size", "data.test_size"),
    *("data.target_tag", "data.documents", "data.document_key"),
)
"""What the recipe says itself to a stage; a user says it to the recipe, or not at all."""

_OWNED_BY_KIND = {
    "translate": ("input_format", "alignment", "attention"),
    **dict.fromkeys(("evaluate", "evaluate_teachers", "evaluate_reverse"), ("split",)),
}
"""Likewise, what is the user's to say in stages of other kinds."""


def refuse_owned(extras: Mapping[str, Sequence[str]]) -> None:
    """Refuse for a stage what the recipe decides.

    Raises:
        InputError: It is that.
    """
    for kind, arguments in extras.items():
        for key in map(key_of, arguments):
            owned = key in OWNED or key.startswith("hydra.") or key == "data"
            if owned or key.startswith("data.corpora.") or key in _OWNED_BY_KIND.get(kind, ()):
                raise InputError(
                    f"{kind}.{key} cannot be set: the recipe says itself what a stage reads and "
                    "writes"
                )


def refuse_fixed(kind: str, arguments: Sequence[str], fixed: Sequence[str], why: str) -> None:
    """Refuse for a stage what another key has decided.

    Raises:
        InputError: It is that.
    """
    for key in {key_of(one) for one in arguments} & {key_of(one) for one in fixed}:
        raise InputError(f"{kind}.{key} cannot be set with {why}, which decides it; leave it out")


def refuse_idle(extras: Mapping[str, Sequence[str]], kinds: set[str]) -> None:
    """Refuse what is said for stages that are not there.

    Raises:
        InputError: There is no stage of that kind.
    """
    for kind, arguments in extras.items():
        if arguments and kind not in kinds:
            raise InputError(
                f"{kind}.{arguments[0]} does nothing: this call has no stage {kind}, whose work "
                "is there already; leave it out"
            )


def refuse_another_model(first: Stage, second: Stage) -> None:
    """Refuse to go on with a model that has another vocabulary or other weights.

    Raises:
        InputError: It has.
    """
    settings = [override(*one) for one in other_model(first.config, second.config).items()]
    if settings:
        raise InputError(
            f"{second.name} begins with the weights of {first.name}, and has another vocabulary "
            f"or model; set {' '.join(settings)} for both"
        )


def refuse_other_direction(said: str, checkpoint: Path, source: str, target: str) -> None:
    """Refuse a model that translates another way.

    Args:
        said: How the user names it.
        checkpoint: Its file.
        source: Language that is wanted.
        target: Likewise.

    Raises:
        InputError: It does; one of several directions is not looked at.
    """
    data = read_payload(checkpoint)[PORTABLE]["config"]["data"]
    if data.get("corpora") is not None or data.get("target_tag"):
        return
    if (data["source"], data["target"]) != (source, target):
        raise InputError(
            f"{said} translates {data['source']} to {data['target']}, and {source} to {target} is "
            "wanted; give another"
        )


def refuse_what_no_recipe_can(config: Mapping[str, Any]) -> None:
    """Refuse runs whose text is more than lines that are translations of each other.

    Raises:
        InputError: It is such a run.
    """
    data = config["data"]
    for key, value, neutral in (
        *((key, config[key], None) for key in ("checkpoint", "finetune_from", "resume_check")),
        ("objective", config["objective"], None),
        ("task", config["task"], "translation"),
        *((f"data.{key}", data[key], None) for key in ("corpora", "documents", "alignment")),
        *((f"data.{key}", data[key], False) for key in ("target_tag", "streaming")),
        ("loss.alignment_weight", config["loss"]["alignment_weight"], 0.0),
    ):
        if value != neutral:
            said = key if isinstance(value, Mapping) else override(key, value)
            raise InputError(
                f"{said} does not go with a recipe, which begins with one corpus of "
                f"sentence pairs, and makes its own of it; leave {key} out"
            )
