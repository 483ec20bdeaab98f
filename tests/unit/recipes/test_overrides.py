"""What is written as KEY=VALUE is read as it was meant."""

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from transformer.recipes.overrides import override

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r$"), max_size=12)
TEXTS |= st.text("'\\\" a", max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def read(argument: str) -> Any:
    (parsed,) = OverridesParser.create().parse_overrides([argument])
    return OmegaConf.to_container(OmegaConf.create({"v": parsed.value()}))["v"]  # type: ignore[index]


@given(VALUES)
@settings(max_examples=60, deadline=None)
def test_any_value_comes_back(value: Any) -> None:
    assert read(override("key", value)) == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (["a/b.en", "c-d.de.gz"], "[a/b.en,c-d.de.gz]"),
        (
            {"x": {"train": [Path("a"), Path("b c")], "weight": 0.5}},
            "{x:{train:[a,'b c'],weight:0.5}}",
        ),
        ("2014", "'2014'"),
        ("null", "'null'"),
        ("it's", r"'it\'s'"),
        (None, "null"),
        (True, "true"),
    ],
)
def test_how_it_looks(value: Any, written: str) -> None:
    assert override("k", value) == f"k={written}"
