"""``predict``: a filter like ``translate`` for a model of one stack: tags, or probabilities."""

from collections.abc import Sequence
from contextlib import ExitStack

from transformer.cli.threads import set_search_threads
from transformer.cli.translate.line_io import open_input, open_output
from transformer.commands.lines import format_line, regular_files
from transformer.commands.predict import predict, predict_file
from transformer.decoding.prediction import Predictor
from transformer.settings.translator import PredictConfig


def run(config: PredictConfig, _: Sequence[str]) -> None:
    """Predict the lines of the input, one by one."""
    if regular_files(config.input, config.output):
        predict_file(config, loaded=_set_threads)
        return
    lines, ready = open_input(config.input)
    name = str(config.input or "stdin")
    predictions = predict(config, lines, name=name, ready=ready, loaded=_set_threads)
    with ExitStack() as stack:
        output = open_output(config.output, stack)
        for found in predictions:
            output.write(format_line(found, config.format).encode() + b"\n")
            output.flush()


def _set_threads(predictor: Predictor) -> None:
    set_search_threads(predictor.model.parameters())
