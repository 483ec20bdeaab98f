"""``predict``: a filter like ``translate`` for a model of one stack: tags, or probabilities."""

import json
from collections.abc import Sequence
from contextlib import ExitStack

from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import checkpoint_task, read_payload
from transformer.checkpoint.locate import find_checkpoint
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.threads import set_search_threads
from transformer.cli.translate.line_io import Form, line_files, open_input, open_output
from transformer.common.files import written_whole
from transformer.decoding.device import find_device, suited_batch_tokens
from transformer.decoding.prediction.language_model import LanguageModel
from transformer.decoding.prediction.predictor import Predictor
from transformer.decoding.prediction.tagger import Tagger


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Predict the lines of the input, one by one."""
    as_json = resolve_value(config, "format", Form) == "json"
    source, target, regular = line_files(config)
    file = find_checkpoint(resolve_path(config, "checkpoint"))
    language_model = checkpoint_task(read_payload(file)) == LanguageModel.task
    kind: type[Predictor] = LanguageModel if language_model else Tagger
    device = find_device(resolve_value(config, "device", str))
    batch_tokens = suited_batch_tokens(resolve_value(config, "batch_tokens", int | None), device)
    predictor = kind.load(file, batch_tokens=batch_tokens, device=device)
    set_search_threads(predictor.model.parameters())
    with ExitStack() as stack:
        lines, ready = open_input(source)
        if regular and target is not None:
            target = stack.enter_context(written_whole(target))
        output = open_output(target, stack)
        for found in predictor.predict_stream(lines, name=str(source or "stdin"), ready=ready):
            line = json.dumps(found.to_json(), ensure_ascii=False) if as_json else found.to_line()
            output.write(line.encode() + b"\n")
            output.flush()
