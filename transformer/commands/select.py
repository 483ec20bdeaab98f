"""``select``: of each n-best list the candidate that a reference or a reverse model chooses."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, starmap
from typing import TYPE_CHECKING

from transformer.common.errors import InputError, errors_name
from transformer.common.files import check_output_path, written_whole
from transformer.common.language_names import language_name
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import plain_pairs
from transformer.decoding.long_inputs import base_language
from transformer.evaluation.metrics import nearest
from transformer.settings.data import DataConfig
from transformer.settings.evaluation import SelectConfig
from transformer.settings.metrics import MetricsConfig
from transformer.settings.translator import TranslatorConfig

if TYPE_CHECKING:
    from transformer.checkpoint.checkpoint import Loaded


def select(config: SelectConfig, *, loaded: "Loaded" = lambda checkpoints: None) -> int:
    """Write the best candidates, a line each; returns their number.

    ``loaded`` is told the checkpoint of ``reverse``. Raises InputError for a line
    that is not an n-best list.
    """
    # One text for each list: a reference, or the source for a reverse model.
    paired_file = None
    if config.source is None and config.reverse is None:
        paired_file = config.reference
    elif config.reference is None and config.reverse is not None:
        paired_file = config.source
    if paired_file is None:
        raise InputError("give reference=FILE alone, or source=FILE and reverse=RUN")
    check_output_path(config.output, [config.nbest, paired_file])
    choose = candidate_choice(config.reverse_model, config.metrics, loaded=loaded)
    files = (config.nbest, paired_file)
    pairs = plain_pairs([*map(read_lines, files)], files)
    lists = (
        (_candidates(line, f"{config.nbest}:{number}"), text)
        for number, (line, text) in enumerate(pairs, 1)
    )
    config.output.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with written_whole(config.output) as part, open(part, "wb") as file:
        for best in choose(lists):
            file.write(best.encode() + b"\n")
            count += 1
    return count


def candidate_choice(
    reverse: TranslatorConfig | None,
    metrics: MetricsConfig,
    languages: tuple[str, str] | None = None,
    *,
    loaded: "Loaded" = lambda checkpoints: None,
) -> Callable[..., Iterator[str]]:
    """The best of candidates and their log-probabilities: by BLEU with a reference; with a source
    by log P(candidate | source) + log P(source | candidate), the latter of ``reverse`` (Li and
    Jurafsky 2016, arXiv:1601.00372). Where the languages of source and candidates are known, a
    model of another direction is an InputError."""
    if reverse is None:
        return partial(starmap, partial(nearest, bleu=metrics.bleu(effective_order=True)))
    from transformer.commands.score import WINDOW, load_scorer  # which imports torch: seconds

    score, run = load_scorer(reverse, loaded)
    if run.data.source_kind != "text":
        raise InputError(
            f"reverse={reverse.checkpoint} reads files ({run.data.source_kind}), and a candidate "
            "is text; give a model of text"
        )
    if languages is not None:
        check_direction(str(reverse.checkpoint), run.data, languages)

    def choose(lists: Iterable[tuple[Mapping[str, float], str]]) -> Iterator[str]:
        lists = iter(lists)
        while window := list(islice(lists, WINDOW)):
            with errors_name(f"reverse={reverse.checkpoint}"):
                pairs = [(text, source) for texts, source in window for text in texts]
                scores = iter(score(pairs, first=None))
            for texts, _ in window:
                joint = {
                    text: log_probability + next(scores).log_probability
                    for text, log_probability in texts.items()
                }
                yield max(joint, key=joint.__getitem__)

    return choose


def check_direction(name: str, data: DataConfig, languages: tuple[str, str]) -> None:
    """Raise InputError unless a model translates from the second language to the first."""
    pairs = [*sorted(data.language_pairs), languages[::-1]]
    *learned, wanted = [tuple(map(base_language, pair)) for pair in pairs]
    # Another code, such as eng or src, may be any language.
    is_known = all(language_name(code) != code for code in chain(*learned, wanted))
    if is_known and wanted not in learned and not data.target_tag:
        *directions, direction = [f"{source} to {target}" for source, target in pairs]
        raise InputError(
            f"reverse={name} translates {', '.join(directions)}, and {direction} is wanted; give a "
            "model of that direction"
        )


def _candidates(line: str, where: str) -> dict[str, float]:
    """The texts of an n-best list, or the text where it has none; each with its log-probability.

    Of hypotheses with the same text, the most probable one counts. Candidates without
    log-probabilities are chosen by the reverse model alone.
    """
    try:
        values = json.loads(line)
        scores: dict[str, float] = {}
        for candidate in values["nbest"] or [values]:
            text = str(candidate["text"])
            text.encode()  # half of a surrogate pair is an error
            text = text.replace("\n", " ")
            log_probability = float(candidate.get("log_probability", 0))
            if not math.isfinite(log_probability):
                raise ValueError("not finite")
            scores[text] = max(log_probability, scores.get(text, -math.inf))
        return scores
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{where}: not a line of translate format=json; give what that has written"
        ) from error
