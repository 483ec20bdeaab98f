"""``select``: of each n-best list the candidate that a reference or a reverse model chooses."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, starmap

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path
from transformer.cli.translate.line_io import check_output_path
from transformer.common.errors import InputError, errors_name
from transformer.common.files import written_whole
from transformer.common.language_names import language_name
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import plain_pairs
from transformer.decoding.long_inputs import base_language
from transformer.evaluation.metrics import nearest
from transformer.settings.data import DataConfig
from transformer.settings.metrics import MetricsConfig


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Select the candidates."""
    # It imports torch, which takes seconds, and which ask needs for reverse= alone.
    from transformer.cli.evaluate.scored_text import resolve_metrics

    nbest, output = (resolve_path(config, key) for key in ("nbest", "output"))
    is_none = [config[key] is None for key in ("reference", "source", "reverse")]
    if is_none not in ([False, True, True], [True, False, False]):
        raise InputError("give reference=FILE alone, or source=FILE and reverse=RUN")
    other = resolve_path(config, "source" if is_none[0] else "reference")
    check_output_path(output, [nbest, other])
    choose = candidate_choice(config, resolve_metrics(config, None))
    pairs = enumerate(plain_pairs([read_lines(nbest), read_lines(other)], (nbest, other)), 1)
    lists = ((_candidates(line, f"{nbest}:{number}"), text) for number, (line, text) in pairs)
    output.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(output) as part, open(part, "wb") as file:
        file.writelines(best.encode() + b"\n" for best in choose(lists))


def candidate_choice(
    config: DictConfig, metrics: MetricsConfig, languages: tuple[str, str] | None = None
) -> Callable[..., Iterator[str]]:
    """The best of candidates and their log-probabilities: by BLEU with a reference; with a source
    by log P(candidate | source) + log P(source | candidate), the latter of ``reverse=`` (Li and
    Jurafsky 2016, arXiv:1601.00372). Where the languages of source and candidates are known, a
    model of another direction is an InputError."""
    if config.reverse is None:
        return partial(starmap, partial(nearest, bleu=metrics.bleu(effective_order=True)))
    from transformer.cli.translate.score import WINDOW, load_scorer

    score, run = load_scorer(config, config.reverse)
    if languages is not None:
        _check_direction(config.reverse, run.data, languages)

    def choose(lists: Iterable[tuple[Mapping[str, float], str]]) -> Iterator[str]:
        lists = iter(lists)
        while window := list(islice(lists, WINDOW)):
            with errors_name(f"reverse={config.reverse}"):
                pairs = [(one, source) for texts, source in window for one in texts]
                scores = iter(score(pairs, first=None))
            for texts, _ in window:
                found = {text: own + next(scores).log_probability for text, own in texts.items()}
                yield max(found, key=found.__getitem__)

    return choose


def _check_direction(name: str, data: DataConfig, languages: tuple[str, str]) -> None:
    """Raise InputError unless a model translates from the second language to the first."""
    pairs = [*sorted(data.language_pairs), languages[::-1]]
    *learned, wanted = [tuple(map(base_language, pair)) for pair in pairs]
    # Another code, such as eng or src, may be any language.
    is_known = all(language_name(code) != code for code in chain(*learned, wanted))
    if is_known and wanted not in learned and not data.target_tag:
        *known, asked = [f"{source} to {target}" for source, target in pairs]
        raise InputError(
            f"reverse={name} translates {', '.join(known)}, and {asked} is wanted; give a model of "
            "that direction"
        )


def _candidates(line: str, where: str) -> dict[str, float]:
    """The texts of an n-best list, or the text where it has none; each with its log-probability."""
    try:
        values = json.loads(line)
        found = [(str(one["text"]), one) for one in values["nbest"] or [values]]
        "".join(text for text, _ in found).encode()  # half of a surrogate pair is an error
        scores = {t.replace("\n", " "): float(one.get("log_probability", 0)) for t, one in found}
        if all(map(math.isfinite, scores.values())):
            return scores
        raise ValueError("not finite")
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{where}: not a line of translate format=json; give what that has written"
        ) from error
