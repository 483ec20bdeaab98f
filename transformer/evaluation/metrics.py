"""Metrics by name, BLEU, chrF and TER by sacreBLEU, and scores with signatures (Post 2018)."""

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from transformer.common.errors import InputError
from transformer.data.text.phrases import is_unspaced, occurs
from transformer.evaluation.sentence_metrics import Comet, Custom, Gleu, build_sentence_metric
from transformer.settings.metrics import METRICS, Better, MetricsConfig, unknown_metric

DECIMALS = 2


BUILDERS: dict[str, Callable[[MetricsConfig], Metric]] = {
    "bleu": MetricsConfig.bleu,
    "chrf": lambda config: CHRF(lowercase=config.lowercase),
    "ter": lambda _: TER(),
    "exact_match": partial(build_sentence_metric, name="exact_match"),
    "cer": partial(build_sentence_metric, name="CER"),
    "wer": partial(build_sentence_metric, name="WER"),
    "per": partial(build_sentence_metric, name="PER"),
    "ser": partial(build_sentence_metric, name="SER"),
    "rouge1": partial(build_sentence_metric, name="rouge1"),
    "rouge2": partial(build_sentence_metric, name="rouge2"),
    "rougel": partial(build_sentence_metric, name="rougeL"),
    "squad_exact_match": partial(build_sentence_metric, name="squad_exact_match"),
    "squad_f1": partial(build_sentence_metric, name="squad_f1"),
    "gleu": Gleu,
    "custom": Custom,
    "comet": Comet,
}
"""How each metric of ``METRICS`` is built."""


@dataclass(frozen=True)
class Score:
    """A score of a model on one text.

    Attributes:
        name: As sacreBLEU writes it (BLEU, chrF2, TER), or exact_match, AER, f1_NOUN and so on.
        value: In percent for text, accuracy and F1; from 0 to 1 for alignment; 1 or more for
            perplexity.
        signature: Settings and, for metrics of text, the version of the program.
        fields: The values of ``to_json``, such as ``score`` (the rounded value) and precision.
        decimals: Of the value in tables.
        better: Only set for metrics of ``METRICS``.
    """

    name: str
    value: float
    signature: str
    fields: dict[str, Any] = field(repr=False)
    decimals: int = DECIMALS
    better: Better = "higher"

    @classmethod
    def of(
        cls, name: str, value: float, signature: str, *, decimals: int = DECIMALS, **details: Any
    ) -> "Score":
        """A score whose fields are its name, its rounded value, its signature, and ``details``."""
        rounded = round(value, decimals)
        fields = {"name": name, "score": rounded, "signature": signature, **details}
        return cls(name, value, signature, fields, decimals)

    def to_json(self) -> dict[str, Any]:
        """The object that ``sacrebleu --format json --width 2`` prints, or one like it."""
        return dict(self.fields)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str | Sequence[str]],
    metrics: Sequence[str] | None = None,
    *,
    config: MetricsConfig,
    sources: Sequence[str] | None = None,
) -> list[Score]:
    """Score hypotheses against one or more references each, in the same order.

    ``metrics`` are names in ``METRICS``; None: the metrics of a test. Only GLEU and COMET read
    sources; with known sources, blank lines do not count (`scored_lines`).
    Raises InputError without hypotheses, or if the numbers of texts differ.
    """
    if not hypotheses or len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses and {len(references)} references cannot be compared; "
            "give one reference or more for each hypothesis, in the same order"
        )
    if sources is not None:
        lines = scored_lines(sources, references, hypotheses)
        hypotheses = [hypotheses[line] for line in lines]
        references = [references[line] for line in lines]
        sources = [sources[line] for line in lines]
    scores = []
    for name in config.tested if metrics is None else metrics:
        metric = build_metric(name, config)
        streams = reference_streams(metric, references, sources)
        result = metric.corpus_score(list(hypotheses), streams)
        signature = str(metric.get_signature())
        fields = json.loads(result.format(width=DECIMALS, signature=signature, is_json=True))
        value = float(result.score)
        scores.append(Score(result.name, value, signature, fields, better=config.better(name)))
    return scores


_JUDGED = 1000
"""References from the first on."""
_LONG_WORD = 8
"""Letters of a word on average, above which text in such a script has no spaces between words."""
_KANA = 0.05
"""Share of the letters of Japanese, at least."""


def unspaced_warning(
    references: Iterable[Sequence[str]], tokenize: str, key: str = "tokenize"
) -> str | None:
    """Return a warning if BLEU would take sentences without spaces, as of Japanese, for words.

    ``key`` is what the user sets to ``tokenize``.
    """
    if tokenize not in ("13a", "intl", "none"):
        return None
    judged = [texts[0] for texts in islice(references, _JUDGED)]
    words = [word for text in judged for word in text.split()]
    letters = [letter for word in words for letter in word if is_unspaced(letter)]
    if 2 * len(letters) < sum(map(len, words)) or len(letters) <= _LONG_WORD * len(words):
        return None
    scripts = Counter(unicodedata.name(letter).partition(" ")[0] for letter in letters)
    if scripts["HIRAGANA"] + scripts["KATAKANA"] >= _KANA * len(letters):
        suited = f"{key}=ja-mecab (pip install 'sacrebleu[ja]') or {key}=char"
    else:
        suited = f"{key}={'zh' if scripts['CJK'] else 'char'}"
    return (
        f"BLEU by {key}={tokenize} takes a whole sentence of these references for a word; "
        f"{suited} divides them"
    )


def scored_lines(
    sources: Sequence[str],
    references: Sequence[str | Sequence[str]],
    *hypotheses: Sequence[str],
) -> list[int]:
    """Indices of the lines that are scored; all if there is none.

    A line that is blank in all of them, as between documents, is no sentence: in a mean over
    sentences it would count as right.
    """
    lines = [
        index
        for index, texts in enumerate(
            zip(sources, map("".join, references), *hypotheses, strict=True)
        )
        if "".join(texts).strip()
    ]
    return lines or list(range(len(sources)))


def reference_streams(
    metric: Metric, references: Sequence[str | Sequence[str]], sources: Sequence[str] | None
) -> list[list[Any]]:
    """The streams of sacreBLEU: all first references, all second ones, and so on.

    A sentence without a second reference has None there. The sources are the first stream of a
    metric that reads them.
    """
    by_sentence = [(texts,) if isinstance(texts, str) else tuple(texts) for texts in references]
    streams: list[list[Any]] = list(map(list, zip_longest(*by_sentence)))
    if not getattr(metric, "uses_source", False):
        return streams
    if sources is None:
        raise InputError(f"{type(metric).__name__} reads the sources, which are missing; give them")
    return [list(sources), *streams]


def build_metric(name: str, config: MetricsConfig, *, sentence_level: bool = False) -> Metric:
    """Build a metric by its name; BLEU and GLEU have a variant for single sentences."""
    if name not in METRICS:
        raise InputError(unknown_metric(name))
    if sentence_level and name == "bleu":
        return config.bleu(effective_order=True)
    if sentence_level and name == "gleu":
        return Gleu(config, smooth=True)
    return BUILDERS[name](config)


def nearest(candidates: Iterable[str], reference: str, bleu: BLEU) -> str:
    """The first candidate with the best sentence BLEU (Kim and Rush 2016, section 3.3)."""
    return max(candidates, key=lambda text: bleu.sentence_score(text, [reference]).score)


def term_accuracy(
    hypotheses: Sequence[str], terms: Sequence[Sequence[str]], signature: str
) -> Score:
    """Percent of all listed phrases that occur (``occurs``) in the hypothesis of their line."""
    matches = [
        occurs(term, hypothesis)
        for hypothesis, line in zip(hypotheses, terms, strict=True)
        for term in line
    ]
    count = len(matches)
    accuracy = 100 * sum(matches) / count
    signature = f"nterms:{count}|{signature}"
    return Score.of("term accuracy", accuracy, signature, found=sum(matches), terms=count)
