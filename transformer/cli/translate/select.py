"""``select``: of each n-best list the candidate nearest to its reference."""

import json
from collections.abc import Sequence

from omegaconf import DictConfig

from transformer.cli.config.compose import resolve_path
from transformer.cli.evaluate.scored_text import resolve_metrics
from transformer.cli.translate.line_io import check_output_path
from transformer.common.errors import InputError
from transformer.common.files import written_whole
from transformer.data.text.lines import read_lines
from transformer.data.text.parallel import plain_pairs
from transformer.evaluation.metrics import nearest


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Select the candidates."""
    nbest, reference, output = (
        resolve_path(config, key) for key in ("nbest", "reference", "output")
    )
    check_output_path(output, [nbest, reference])
    bleu = resolve_metrics(config, None).bleu(effective_order=True)
    pairs = plain_pairs([read_lines(nbest), read_lines(reference)], (nbest, reference))
    output.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(output) as part, open(part, "wb") as file:
        for number, (line, right) in enumerate(pairs, 1):
            candidates = _candidates(line, f"{nbest}:{number}")
            file.write(nearest(candidates, right, bleu).encode() + b"\n")


def _candidates(line: str, where: str) -> list[str]:
    """The texts of an n-best list; the text alone where it has none."""
    try:
        values = json.loads(line)
        found = [str(candidate["text"]) for candidate in values["nbest"] or [values]]
        "".join(found).encode()  # half of a surrogate pair is an error
        return [text.replace("\n", " ") for text in found]
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{where}: not a line of translate format=json; give what that has written"
        ) from error
