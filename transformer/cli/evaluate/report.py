"""``report``: one page of a run, of several runs side by side, or the model card."""

from collections.abc import Sequence
from typing import Literal

from omegaconf import DictConfig

from transformer.checkpoint.checkpoint import portable_part, read_payload, require_translation
from transformer.checkpoint.locate import find_checkpoint, run_folder
from transformer.cli.config.compose import resolve_path, resolve_value
from transformer.cli.evaluate.scored_text import require_trusted
from transformer.common.errors import InputError
from transformer.common.files import given_path
from transformer.common.own_code import import_code
from transformer.data.corpora.trust import named_classes
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.readme import model_card
from transformer.report.scores import require_writable, write_whole
from transformer.runs.report_values import require_config, run_report, write_report


def run(config: DictConfig, _: Sequence[str]) -> None:
    """Write a report, and print its path."""
    form = resolve_value(config, "format", Literal["html", "card"])
    folders = []
    for path in map(given_path, config.runs):
        if not path.exists():
            raise InputError(f"{path} does not exist; give a run directory")
        folders.append(path if path.is_dir() else run_folder(path))
    for folder in folders:
        plain = require_config(folder)
        require_trusted(config, plain)
        import_code(named_classes(plain))
    output = resolve_path(config, "output", folders[-1])
    require_writable(output)
    if form == "html":
        print(write_report(output, run_report(folders)))
        return
    if len(folders) > 1:
        raise InputError(f"format=card is of one run, and not of {len(folders)}; give one")
    file = find_checkpoint(folders[0], "best")
    payload = read_payload(file)
    require_translation(payload, file)
    portable = portable_part(payload)
    about = {key: resolve_value(config, key, str | None) for key in ("repo", "license")}
    library = resolve_value(config, "library", Literal["transformers", "transformer"])
    tokenizer, report = Tokenizer.from_state(portable.tokenizer), run_report(folders)
    card = output / "model_card.md"
    write_whole(card, model_card(tokenizer, portable.config, report, library, about))
    print(card)
