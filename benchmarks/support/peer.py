"""What another toolkit is given of a run of ours, and what its training leaves in its folder.

It gets the run's text in the run's subwords, and leaves the score of each validation and the
translations of the test set, which are scored as ours are.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.support.trained import Training
from transformer.cli.config import compose_config, run_settings
from transformer.common.files import written_whole
from transformer.data.corpora.resolve import find_splits
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.evaluation.metrics import build_metric
from transformer.settings.run import RunConfig
from transformer.tasks.registry import make_task

OUTCOME = "outcome.json"


@dataclass
class Outcome:
    """What a training has given.

    Attributes:
        validations: After how many updates, and the BLEU of all validation sentences.
        parameters: How many.
        scores: BLEU and chrF of the test set, once training is over.
        signatures: Of these.
    """

    validations: list[tuple[int, float]]
    parameters: int
    scores: dict[str, float]
    signatures: dict[str, str]

    @property
    def best(self) -> tuple[int, float]:
        """The validation that chooses."""
        return max(self.validations, key=lambda validation: validation[1])


@dataclass(frozen=True)
class Peer(Training):
    """A training of another toolkit by ``python -m MODULE FOLDER ARGUMENTS``, which can go on."""

    module: str

    def check(self) -> None:
        """Leaves that to the module."""

    def train(self, threads: int, until: float = float("inf")) -> None:
        """Train, unless it is finished; see ``Training``."""
        if not (self.folder / OUTCOME).exists():
            super().train(threads, until)

    @property
    def call(self) -> list[str]:
        """Goes on where it was stopped."""
        return ["-m", self.module, str(self.folder), *self.overrides]

    @property
    def run(self) -> Path:
        """The folder itself."""
        return self.folder

    @property
    def outcome(self) -> Outcome:
        """What it has given."""
        found = json.loads((self.folder / OUTCOME).read_text("utf-8"))
        return Outcome(**found)


class Text:
    """The text of a run of ours and its subwords, which are learned or read from its cache.

    Args:
        overrides: Of the run.
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        self.config: RunConfig = run_settings(compose_config("train", list(overrides)))
        self.task = make_task(self.config, None)
        self.task.data.prepare_data()
        self.task.data.setup("fit")
        self.tokenizer: Tokenizer = self.task.data.tokenizer

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Source and first target of each line of ``train``, ``validation`` or ``test``."""
        return [(pair[0], pair[1]) for pair in find_splits(self.config.data)[split]]

    def scores(
        self, hypotheses: Sequence[str], split: str
    ) -> tuple[dict[str, float], dict[str, str]]:
        """BLEU and chrF, and their signatures, as our own tests have them."""
        references = [target for _, target in self.pairs(split)]
        scores, signatures = {}, {}
        for name in ("bleu", "chrf"):
            metric = build_metric(name, self.config.metrics)
            found = metric.corpus_score(list(hypotheses), [references])
            scores[found.name] = round(found.score, 2)
            signatures[found.name] = str(metric.get_signature())
        return scores, signatures

    def bleu(self, hypotheses: Sequence[str]) -> float:
        """Of the validation text."""
        metric = build_metric("bleu", self.config.metrics)
        references = [target for _, target in self.pairs("validation")]
        return float(metric.corpus_score(list(hypotheses), [references]).score)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """The end of a training."""
    with written_whole(folder / OUTCOME) as part:
        part.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def own_and_ours(arguments: Sequence[str], name: str) -> tuple[dict[str, str], list[str]]:
    """Settings of a toolkit, ``NAME.KEY=VALUE``, and the overrides of our run beside them."""
    own = [argument for argument in arguments if argument.startswith(f"{name}.")]
    pairs = (argument.removeprefix(f"{name}.").partition("=") for argument in own)
    return {key: value for key, _, value in pairs}, [
        argument for argument in arguments if argument not in own
    ]
