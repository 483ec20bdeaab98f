"""The YAML of every corpus and tokenizer says all that the code asks, and nothing else."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tests.helpers.data.corpora import data_config, tokenizer_config
from transformer.common.errors import InputError
from transformer.data.config import CorpusConfig, DataConfig
from transformer.data.corpora.catalog import PUBLISHED
from transformer.data.modules.translation import DataModule
from transformer.data.tokenization.tokenizer import TokenizerConfig

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
    subwords = TokenizerConfig(**OmegaConf.to_container(tokenizer, resolve=True)["tokenizer"])
    assert subwords.algorithm == algorithm
    DataModule(config, subwords)


def test_paths_are_given_as_a_pair_or_as_one_file() -> None:
    overrides = ["+seed=1", "data.train=[a.en,a.de]", "data.test=c.jsonl.gz"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("data/files", overrides=overrides)
    keys = OmegaConf.to_container(config, resolve=True)
    assert isinstance(keys, dict)
    data = DataConfig(**keys["data"])
    assert (data.train, data.validation, data.test) == (["a.en", "a.de"], None, "c.jsonl.gz")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("workers", -1, r"data\.workers=-1 must be at least 0"),
        ("max_ratio", 0.5, r"data\.max_ratio=0\.5 must be at least 1"),
        ("max_left_out", 1.5, r"data\.max_left_out=1\.5 must be from 0 to 1"),
        ("buffer", 0, r"data\.buffer=0 must be at least 1"),
        ("corpora", {}, r"data\.corpora={} names none"),
        ("corpora", {"web": CorpusConfig(test_size=-1)}, r"data\.corpora\.web\.test_size=-1 must"),
        ("vocab_size", 4, r"tokenizer\.vocab_size=4 must be at least 5"),
        ("character_coverage", 0.5, r"character_coverage=0\.5 must be from 0\.98 to 1"),
        ("sampling", 2.0, r"tokenizer\.sampling=2\.0 must be from 0 to 1"),
    ],
)
def test_a_number_out_of_range_is_named(tmp_path: Path, key: str, value: object, says: str) -> None:
    tokenizer = key in vars(tokenizer_config())
    with pytest.raises(InputError, match=says):
        _ = tokenizer_config(**{key: value}) if tokenizer else data_config(tmp_path, **{key: value})
