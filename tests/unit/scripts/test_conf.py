"""Defaults are written into the YAML of conf/."""

from scripts.conf import rewritten, shown_defaults

BEFORE = """\
# width: 3
defaults:
  - base
width: 1
rates:                  # of two kinds
  low: 1e-3             # of the first
  high: 2               # 2 is no 2.0
names: [a, b]
seed: ${seed}
other: 1
"""
VALUES = {"width": 64, "rates.low": 0.001, "rates.high": 2.0, "names": ["a"], "seed": 1}


def test_a_line_keeps_its_layout_and_its_comment() -> None:
    after = BEFORE.replace("width: 1", "width: 64").replace("high: 2  ", "high: 2.0")
    assert rewritten(BEFORE, VALUES) == after.replace("[a, b]", "[a]")


def test_conf_shows_what_would_be_written() -> None:
    for file, values in shown_defaults():
        text = file.read_text(encoding="utf-8")
        assert rewritten(text, values) == text, f"{file}: run python -m scripts.conf"
