"""``launch=ray`` of ``translate`` and ``score``."""

import os
import sys

from transformer.common.errors import Interrupted
from transformer.settings.evaluation import ScoreConfig
from transformer.settings.translator import TranslateConfig


def launch(config: TranslateConfig | ScoreConfig) -> None:
    """Write the blocks, and print their number to stderr."""
    from transformer.commands.ray_data import score_files, translate_files  # and pyarrow, fsspec

    # Without it, Ray sends statistics of each start to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if isinstance(config, TranslateConfig):
            written = translate_files(config)
        else:
            written = score_files(config)
    except KeyboardInterrupt as stop:
        raise Interrupted("stopped; the same command resumes") from stop
    before = f"; {written.done:,} blocks were there before" if written.done else ""
    print(
        f"{config.output}: {written.lines:,} lines in {written.blocks:,} blocks{before}",
        file=sys.stderr,
    )
