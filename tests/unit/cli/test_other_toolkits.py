"""docs/other_toolkits.md names keys that exist."""

import re
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from transformer.cli.arguments import config_folder
from transformer.cli.config import compose_config

PAGE = Path(__file__).parents[3] / "docs" / "other_toolkits.md"
GIVEN = re.compile(r"([\w.]+)=([^\s`']+)")


def has(config: DictConfig, key: str) -> bool:
    folder, _, name = key.rpartition(".")
    return name in ((OmegaConf.select(config, folder) if folder else config) or ())


def test_the_keys_of_the_page_exist() -> None:
    configs = [compose_config("train", ["~experiment", "data=files", "decoding=diverse"])]
    for verb in ("evaluate", "average", "translate"):
        configs.append(compose_config(verb, ["checkpoint=RUN"]))
    configs.append(compose_config("score", ["checkpoint=RUN", "source=a", "target=b"]))
    # Each KEY=VALUE of the last column of a table.
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    pairs = {pair for row in rows for pair in GIVEN.findall(row.rpartition(" | ")[2])}
    assert len(pairs) > 50
    for key, value in pairs:
        if (config_folder() / key).is_dir():
            assert (config_folder() / key / f"{value}.yaml").is_file(), key
        else:
            assert key.startswith("hydra.") or any(has(config, key) for config in configs), key
