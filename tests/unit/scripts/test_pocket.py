"""The generator makes the text of data/pocket/, and its German is that of a native speaker."""

import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from shutil import copytree

import pytest
import yaml

from scripts.pocket.derivation import Choice
from scripts.pocket.generate import LANGUAGE, SEED, SIZES, generate_splits, input_files
from scripts.pocket.grammar import Grammar
from scripts.pocket.lexicon import Candidates, Entry
from scripts.pocket.rule import Option, Rule

COMMITTED = Path(__file__).parents[3] / "data" / "pocket"
FEWER = {**SIZES, "train": 2_000, "test_novel": 50}
PAIRS = yaml.safe_load(Path(__file__).with_name("pocket_pairs.yaml").read_text(encoding="utf-8"))


@cache
def grammar() -> Grammar:
    return Grammar.load(LANGUAGE)


class ScriptedChoice(Choice):
    """Makes the choices of a script; where there is one option only, the script is silent."""

    def __init__(self, script: Sequence[str]) -> None:
        self.script = list(script)

    def rule(self, rules: Sequence[Rule]) -> Rule:
        return rules[self._next([rule.name for rule in rules])]

    def value(self, options: Sequence[Option]) -> str:
        return options[self._next([option.value for option in options])].value

    def entry(self, candidates: Candidates) -> Entry:
        return candidates.entries[self._next([entry.name for entry in candidates.entries])]

    def includes(self, slot: str, chance: float) -> bool:
        included = chance == 1 or self.script[:1] == [f"+{slot}"]
        if included and chance < 1:
            self.script.pop(0)
        return included

    def _next(self, names: list[str]) -> int:
        if len(names) == 1:
            return 0
        assert self.script and self.script[0] in names, f"{self.script[:1]} is none of {names}"
        return names.index(self.script.pop(0))


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(SIZES, marks=pytest.mark.slow), pytest.param(FEWER, marks=pytest.mark.thorough)],
)
def test_the_generator_makes_the_committed_text(sizes: Mapping[str, int]) -> None:
    committed = {path.relative_to(COMMITTED) for path in COMMITTED.rglob("*.gz")}
    files = dict(input_files(generate_splits(grammar(), SEED, sizes)))
    assert committed == {Path(f"{name}.gz") for name in files}
    for name, text in files.items():
        # Another zlib may pack the same text in other bytes.
        whole = gzip.decompress((COMMITTED / f"{name}.gz").read_bytes()).decode()
        if sizes == SIZES:
            assert text == whole, name
        # Fewer words of train are known, so that other sentences of test_novel are understood.
        elif "test_novel" not in name:
            assert text and whole.startswith(text), name


@pytest.mark.parametrize(("english", "german", "choices"), PAIRS, ids=[row[0] for row in PAIRS])
def test_translates_as_a_native_speaker_would(
    english: str, german: str, choices: list[str]
) -> None:
    pair = grammar().derive(ScriptedChoice(choices)).pair
    assert (pair.english.text, pair.german.text) == (english, german)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("rules.yaml", "rules:\n", "rules: [\n", "did not find expected"),
        ("rules.yaml", 'slots: {clause: "clause[', 'slots: {clause: "clouse[', "clouse"),
        ("nouns.yaml", "der Vater, des Vaters", "Vater, des Vaters", "father"),
    ],
)
def test_a_malformed_file_is_named(
    tmp_path: Path, file: str, old: str, new: str, message: str
) -> None:
    folder = copytree(LANGUAGE, tmp_path / "language")
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message) as raised:
        Grammar.load(folder)
    assert str(folder / file) in str(raised.value)
    assert "\n" not in str(raised.value)
