"""docs/other_toolkits.md names keys that there are, and their defaults."""

import re
from pathlib import Path

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from transformer.cli.arguments import config_folder
from transformer.cli.config import compose_config

PAGE = Path(__file__).parents[3] / "docs" / "other_toolkits.md"
GIVEN = re.compile(r"([\w.]+)=([^\s`']+)")
VERBS = {"evaluate": [], "score": ["source=a", "target=b"], "average": [], "translate": []}


def given() -> list[tuple[str, str]]:
    """Each ``KEY=VALUE`` of the last column of a table, but for Hydra's own."""
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    pairs = {pair for row in rows for pair in GIVEN.findall(row.rpartition(" | ")[2])}
    return sorted(pair for pair in pairs if not pair[0].startswith("hydra."))


@pytest.fixture(scope="module")
def configs() -> list[DictConfig]:
    """Without an experiment: those of the verbs that the page names."""
    assert len(given()) > 50
    train = ["~experiment", "data=files"]
    verbs = [compose_config(verb, ["checkpoint=RUN", *more]) for verb, more in VERBS.items()]
    trains = [compose_config("train", [*train, *more]) for more in ([], ["decoding=diverse"])]
    return [*trains, *verbs]


@pytest.mark.parametrize(("key", "value"), given())
def test_a_key_is_there(key: str, value: str, configs: list[DictConfig]) -> None:
    if (config_folder() / key).is_dir():
        assert (config_folder() / key / f"{value}.yaml").is_file()
        return
    known = [config for config in configs if _has(config, key)]
    assert known
    if isinstance(number := yaml.safe_load(value), int | float) and not isinstance(number, bool):
        assert any(OmegaConf.select(config, key) == number for config in known)


def _has(config: DictConfig, key: str) -> bool:
    folder, _, name = key.rpartition(".")
    return name in ((OmegaConf.select(config, folder) if folder else config) or ())
