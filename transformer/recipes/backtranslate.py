"""Back-translation: text of the target language, with sources that a reverse model made, is learnt
from as well.

Sennrich et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data"; tags:
Caswell et al. 2019, "Tagged Back-Translation"; sampling: Edunov et al. 2018, "Understanding
Back-Translation at Scale". It does not run anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import is_plain
from transformer.recipes.corpus_files import CorpusFiles, only_train
from transformer.recipes.plan import Plan


@dataclass(frozen=True)
class BacktranslateConfig:
    """Keys of ``conf/recipe/backtranslate.yaml``.

    Attributes:
        monolingual: Text of the target language, a sentence a line.
        reverse: A run or a checkpoint that translates from target to source; None trains one.
        tag: Before each synthetic source; None puts none.
        bitext_share: Share of the batches that are not synthetic; None is as the sizes are.
    """

    monolingual: str
    reverse: str | None
    tag: str | None
    bitext_share: float | None

    def __post_init__(self) -> None:
        if not is_plain(self.monolingual):
            raise InputError(
                f"monolingual={self.monolingual} must be plain text, a sentence a line, which may "
                "be gzipped"
            )
        if self.bitext_share is not None and not 0 < self.bitext_share < 1:
            raise InputError(f"bitext_share={self.bitext_share} must be in (0, 1), or null")


def backtranslate(plan: Plan, config: BacktranslateConfig) -> None:
    """Add the stages to a plan.

    Raises:
        InputError: The reverse model is not there, or not of that direction; the monolingual text
            has no line.
    """
    texts = plan.text()
    back = texts.swapped
    if config.reverse is None:
        reverse = plan.train("reverse", back.alone)
    else:
        reverse = plan.existing("reverse", config.reverse, back)
    plan.evaluate([reverse], back, "evaluate_reverse")
    monolingual = given_path(config.monolingual)
    if next(iter(read_lines(monolingual)), None) is None:
        raise InputError(f"monolingual={config.monolingual} has no line; give text to translate")
    own = {"checkpoint": reverse, "input": monolingual}
    [source] = plan.add("translate", "translate", own, [f"synthetic.{texts.source}"])
    forward = plan.train("forward", _data(config, texts, [source, monolingual]))
    plan.evaluate([forward], texts)


def _data(
    config: BacktranslateConfig, texts: CorpusFiles, synthetic: Sequence[Path]
) -> dict[str, Any]:
    """Keys of ``data.`` for the forward model."""
    bitext, other = texts.as_corpus, only_train(synthetic)
    if config.tag is not None:
        other["tag"] = config.tag
    if config.bitext_share is not None:
        bitext["weight"] = config.bitext_share
        other["weight"] = round(1 - config.bitext_share, 9)
    return texts.mixed({"bitext": bitext, "synthetic": other})
