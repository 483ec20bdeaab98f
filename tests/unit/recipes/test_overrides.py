"""What is written as KEY=VALUE is read as it was meant."""

from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from transformer.recipes.overrides import override

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r$"), max_size=12)
TEXTS |= st.text("'\\\" a", max_size=6) | st.sampled_from(["2014", "null", "True", "1e5"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_any_value_comes_back(value: Any) -> None:
    (parsed,) = OverridesParser.create().parse_overrides([override("key", value)])
    config = OmegaConf.to_container(OmegaConf.create({"key": parsed.value()}))
    assert config == {"key": value}


def test_a_corpus_is_written_without_quotes_where_none_are_needed() -> None:
    corpus = {"train": [Path("a/b.en"), Path("b c.de")], "weight": 0.5, "tag": "2014"}
    assert override("k", corpus) == "k={train:[a/b.en,'b c.de'],weight:0.5,tag:'2014'}"
