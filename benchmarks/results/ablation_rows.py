"""What is changed in the experiment of Multi30k, one thing a row, and where it was published.

It does not know how they are trained.
"""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """What is changed in the experiment, and where it was published.

    Attributes:
        overrides: Arguments of train.py; of ``transformer`` if the first is ``recipe=NAME``, with
            ``{teachers}`` and ``{german}`` for files.
        source: Where it was published.
        average: Score the mean of so many of the newest checkpoints; 0 the best one.
        last: The folder of the last training of a ``recipe=``.
        teachers: The names of the rows whose models it learns from.
    """

    overrides: str
    source: str
    average: int = 0
    last: str = ""
    teachers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the row."""
        return f"{self.folder}_average-{self.average}" if self.average else self.folder

    @property
    def folder(self) -> str:
        """Where it is trained; two rows may be of one training."""
        return "_".join(self.shown.replace("=", "-").split()) or "baseline"

    @property
    def shown(self) -> str:
        """The overrides, without files."""
        return " ".join(one for one in self.overrides.split() if "{" not in one)


CHANGES = [
    Change("", ""),
    Change("seed=2", "how much chance does"),
    Change("seed=3", "likewise"),
    Change("callbacks.ema_decay=0", "the weights of the best update alone"),
    Change("callbacks.ema_decay=0", "the mean of ten checkpoints, Vaswani et al. 2017", average=10),
    Change("model.dropout=0.3", "more dropout"),
    Change("tokenizer.vocab_size=4000", "Ding et al. 2019: small vocabularies for small text"),
    Change("tokenizer.vocab_size=16000", "a larger vocabulary; Ding et al. 2019"),
    Change("loss=r_drop", "Liang et al. 2021"),
    Change("model.source_token_dropout=0.1", "Sennrich et al. 2016"),
    Change("model.target_token_dropout=0.1", "likewise"),
    Change("model.encoder_layers=8 model.decoder_layers=2", "Kasai et al. 2021, shallow decoder"),
    Change("tokenizer.sampling=0.1", "Provilkov et al. 2020, BPE-dropout"),
]
CHAINS = [
    Change(
        "recipe=distill teachers={teachers}",
        "Kim and Rush 2016, Freitag et al. 2017: learn from three seeds, too",
        last="04_student",
        teachers=("baseline", "seed-2", "seed-3"),
    ),
    Change(
        "recipe=backtranslate monolingual={german}",
        "Sennrich et al. 2016, of the German that the text has",
        last="05_forward",
    ),
]
ROWS = [*CHANGES, *CHAINS]


def chosen(names: Collection[str]) -> list[Change]:
    """The rows of these names, and if there are any, the baseline and what they learn from."""
    if not names:
        return []
    teachers = {name for change in ROWS if change.name in names for name in change.teachers}
    return [one for one in ROWS if one.name in {"baseline", *names, *teachers}]
