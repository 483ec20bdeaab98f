"""``train``: compose a config, or take that of the run to go on with, and hand it over."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import compose_config, config_folder
from transformer.cli.exit import exit_code_of
from transformer.cli.resume import (
    AUTO,
    chosen_run,
    named_checkpoint,
    resumed_config,
    run_folder_of,
)
from transformer.training.run_folder import has_checkpoint, taken


def main(arguments: Sequence[str]) -> int:
    """Train; returns the exit code."""
    return exit_code_of(lambda: _launch(list(arguments)))


def _launch(arguments: list[str]) -> None:
    checkpoint = named_checkpoint(arguments)
    if checkpoint is not None:
        _train(resumed_config(checkpoint, arguments), run_folder_of(checkpoint))
        return
    # Hydra's flags (--multirun, --help, --cfg) start with a dash and are its own to check.
    if not any(argument.startswith("-") for argument in arguments):
        compose_config("train", arguments)
    sys.argv[1:] = arguments
    hydra.main(str(config_folder()), "train", version_base="1.3")(_task)()


def _task(config: DictConfig) -> None:
    """One job; Hydra must not see our exceptions, which it would print with a traceback."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    code = exit_code_of(lambda: _begin(config, folder))
    if code:
        sys.exit(code)


def _begin(config: DictConfig, folder: Path) -> None:
    if config.checkpoint == AUTO:
        folder = chosen_run(config, folder, HydraConfig.get())
        config.checkpoint = str(folder) if has_checkpoint(folder) else None
    _train(config, folder)


def _train(config: DictConfig, folder: Path) -> None:
    # Torch and Lightning take seconds to import: not before the call is known to be right.
    from transformer.training.config import run_config
    from transformer.training.run import train

    OmegaConf.resolve(config)
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / "train.log")
    typed = run_config(OmegaConf.to_container(config))  # type: ignore[arg-type]
    OmegaConf.save(config, folder / "config.yaml")
    logging.getLogger(__name__).info("run directory %s", folder)
    with taken(folder):
        if typed.resume_check is not None:
            from transformer.training.resume_check import check_resume

            print(check_resume(typed.resolved, folder, typed.resume_check))
        else:
            train(typed, folder)


def _log_to(file: Path) -> None:
    """Say everything on stderr and in the run directory."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        handlers=[logging.StreamHandler(sys.stderr), logging.FileHandler(file)],
        force=True,
    )
    logging.captureWarnings(True)
