"""The YAML of every corpus and tokenizer says all that the code asks, and nothing else."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from transformer.data.config import DataConfig
from transformer.data.datamodule import DataModule
from transformer.data.published import PUBLISHED
from transformer.data.tokenizer import TokenizerConfig

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.mark.parametrize("corpus", ["pocket", *PUBLISHED, "files", "folder"])
@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_a_data_module_is_built_of_its_yaml(corpus: str, algorithm: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        data = compose(f"data/{corpus}", overrides=["+seed=7"])
        tokenizer = compose(f"tokenizer/{algorithm}")
    keys = OmegaConf.to_container(OmegaConf.create({"seed": 7, **data}), resolve=True)
    assert isinstance(keys, dict)
    config = DataConfig(**keys["data"])
    assert (config.corpus, config.seed) == (corpus, 7)
    pieces = TokenizerConfig(**OmegaConf.to_container(tokenizer, resolve=True)["tokenizer"])
    assert pieces.algorithm == algorithm
    DataModule(config, pieces)


def test_paths_are_given_as_a_pair_or_as_one_file() -> None:
    overrides = ["+seed=1", "data.train=[a.en,a.de]", "data.test=c.jsonl.gz"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("data/files", overrides=overrides)
    keys = OmegaConf.to_container(config, resolve=True)
    assert isinstance(keys, dict)
    data = DataConfig(**keys["data"])
    assert (data.train, data.validation, data.test) == (["a.en", "a.de"], None, "c.jsonl.gz")
