"""``predict``: tags, or probabilities, of lines by a model of one stack."""

from collections.abc import Callable, Iterable, Iterator

from transformer.checkpoint.checkpoint import checkpoint_task, read_payload
from transformer.checkpoint.run_directory import find_checkpoint
from transformer.commands.line_files import format_line, given_lines, required_files
from transformer.common.files import written_whole
from transformer.decoding.device import find_device, suited_batch_tokens
from transformer.decoding.prediction import LanguageModel, Prediction, Predictor, Tagger
from transformer.interchange.translators import fetched
from transformer.settings.translator import PredictConfig

Loaded = Callable[[Predictor], object]


def predict(
    config: PredictConfig,
    lines: Iterable[str] | None = None,
    *,
    name: str | None = None,
    ready: Callable[[], bool] | None = None,
    loaded: Loaded = lambda predictor: None,
) -> Iterator[Prediction]:
    """Load the model; the iterator predicts lines in their order.

    Args:
        config: The settings; ``output`` and ``format`` are those of `predict_file`.
        lines: None reads the file ``input``.
        name: Of the lines in errors, ``NAME:NUMBER``; None is ``input``, or ``lines``.
        ready: See ``Translator.translate_stream``.
        loaded: Is told the predictor.
    """
    name = name or str(config.input or "lines")
    lines = given_lines(lines, config.input)
    predictor = load_predictor(config)
    loaded(predictor)
    return predictor.predict_stream(lines, name=name, ready=ready)


def predict_file(config: PredictConfig, *, loaded: Loaded = lambda predictor: None) -> None:
    """Predict the lines of the file ``input``, and write ``output``: all of it or nothing."""
    _, target = required_files(config.input, config.output)
    predictions = predict(config, loaded=loaded)
    with written_whole(target) as part, open(part, "wb") as output:
        output.writelines(
            format_line(prediction, config.format).encode() + b"\n" for prediction in predictions
        )


def load_predictor(config: PredictConfig) -> Predictor:
    """The tagger or the language model of a checkpoint."""
    file = find_checkpoint(fetched(config.checkpoint))
    language_model = checkpoint_task(read_payload(file, tensors=False)) == LanguageModel.task
    kind: type[Predictor] = LanguageModel if language_model else Tagger
    device = find_device(config.device)
    batch_tokens = suited_batch_tokens(config.batch_tokens, device)
    return kind.load(file, batch_tokens=batch_tokens, device=device, trusted=config.trust)
