"""The pocket grammar, and derivations of it that a test spells out choice by choice."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from transformer.data.grammar import Grammar
from transformer.data.grammar_rule import Option, Rule
from transformer.data.lexical_entry import Candidates, Entry

FOLDER = Path(__file__).parents[3] / "data" / "pocket"


@cache
def pocket_grammar() -> Grammar:
    return Grammar.load(FOLDER)


def entry(lemma: str) -> Entry:
    category, _, name = lemma.partition(":")
    (found,) = [e for e in pocket_grammar().lexicon.entries[category] if e.name == name]
    return found


class ScriptedChoice:
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
