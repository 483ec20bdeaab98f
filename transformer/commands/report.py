"""``report``: one page of a run, of several runs side by side, or the model card."""

from pathlib import Path

from transformer.checkpoint.checkpoint import portable_part, read_payload, require_translation
from transformer.checkpoint.run_directory import find_checkpoint, run_folder
from transformer.checkpoint.trust import named_classes, require_trust
from transformer.common.errors import InputError
from transformer.common.files import require_writable, write_text_whole
from transformer.common.own_code import import_code
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.interchange.readme import Published, model_card
from transformer.interchange.translators import fetched
from transformer.runs.report import require_config, run_report, write_report
from transformer.settings.commands import ReportConfig


def report(config: ReportConfig) -> Path:
    """Write the page or the model card, and return its path.

    Raises InputError for a folder that is no run, or that names code or text elsewhere and is not
    trusted.
    """
    folders = list(map(_folder, config.runs))
    for folder in folders:
        run = require_config(folder)
        require_trust(run, config.trust, folder)
        import_code(named_classes(run))
    output = config.output or folders[-1]
    require_writable(output)
    if config.format == "html":
        return write_report(output, run_report(folders))
    [folder] = folders
    file = find_checkpoint(folder, "best")
    payload = read_payload(file)
    require_translation(payload, file)
    portable = portable_part(payload)
    tokenizer = Tokenizer.from_state(portable.tokenizer)
    values = run_report(folders)
    about = Published(config.license, config.repo)
    card = output / "model_card.md"
    write_text_whole(card, model_card(tokenizer, portable.config, values, config.library, about))
    return card


def _folder(name: str | Path) -> Path:
    path = fetched(name)
    if not path.exists():
        raise InputError(f"{path} does not exist; give a run directory")
    return path if path.is_dir() else run_folder(path)
