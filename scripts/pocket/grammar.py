"""The synchronous grammar that makes the pocket corpus.

The lexicon and the rules are data: the YAML files of a folder, described in README.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml import YAMLError

from scripts.pocket.derivation import Choice, Deriver, ImpossibleError, Node
from scripts.pocket.lexicon import Lexicon
from scripts.pocket.linearization import Linearizer, SentencePair, VerbGroups, pair_of
from scripts.pocket.rule import SIDES, Rule, check_rules

LEXICON_FILES = ("nouns.yaml", "verbs.yaml", "adjectives.yaml", "words.yaml")


@dataclass(frozen=True)
class Derivation:
    """A sentence pair, the entries of its tree, and the combinations in it that are held out.

    ``lemmas`` are ``category:name``; ``held_out`` is empty for what training may contain.
    """

    pair: SentencePair
    lemmas: tuple[str, ...]
    held_out: tuple[str, ...]


class Grammar:
    """Lexicon, rules and hold-out of a folder of YAML files; see :meth:`load`."""

    def __init__(self, lexicon: Lexicon, content: Mapping[str, Any]) -> None:
        self.lexicon = lexicon
        self._rules = {
            category: tuple(Rule.parse(category, item, content["fragments"]) for item in items)
            for category, items in content["rules"].items()
        }
        check_rules(self._rules, lexicon.categories)
        self._holdout = {tuple(item["of"]): int(item["one_in"]) for item in content["holdout"]}
        self._longest = int(content["longest"])
        kinds = content["clause_orders"]
        self._linearizers = {
            side: Linearizer(
                side,
                VerbGroups(
                    side,
                    content["tenses"],
                    kinds["inverted"],
                    kinds["verb_last"],
                    lexicon.auxiliaries[side],
                ),
                content["spelling"],
            )
            for side in SIDES
        }

    @classmethod
    def load(cls, folder: Path) -> Grammar:
        """Read ``morphology.yaml``, ``rules.yaml`` and the lexicon files of ``folder``.

        Raises:
            ValueError: a file is missing or malformed.
        """
        path = folder / "morphology.yaml"
        try:
            lexicon = Lexicon(_read(path))
            for name in LEXICON_FILES:
                path = folder / name
                for category, groups in _read(path).items():
                    for group, items in groups.items():
                        lexicon.add(category, group, items)
            path = folder / "rules.yaml"
            return cls(lexicon, _read(path))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, YAMLError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(f"{path}: {reason}; mend the file") from error

    def derive(self, choice: Choice) -> Derivation:
        """The derivation of a sentence that ``choice`` makes.

        Raises:
            ImpossibleError: the grammar has none.
        """
        return self._derivation(Deriver(self.lexicon, self._rules, choice).derive("sentence"))

    def derivations(self, seed: int) -> Iterator[Derivation]:
        """An endless stream of derivations; sentences recur."""
        deriver = Deriver(self.lexicon, self._rules, Choice(seed))
        while True:
            try:
                tree = deriver.derive("sentence")
            except ImpossibleError:
                continue
            derivation = self._derivation(tree)
            if len(derivation.pair.english.words) <= self._longest:
                yield derivation

    def _held_out(self, nodes: list[Node]) -> Iterator[str]:
        """The combinations in a tree whose CRC-32 is divisible by ``one_in``."""
        for node in nodes:
            if node.rule is None or node.rule.transparent:
                continue
            for paths, one_in in self._holdout.items():
                values = list(_values(node, paths))
                if len(values) == len(paths):
                    name = f"{' + '.join(paths)}: {' + '.join(values)}"
                    if zlib.crc32(name.encode()) % one_in == 0:
                        yield name

    def _derivation(self, tree: Node) -> Derivation:
        english = self._linearizers["en"].sentence(tree)
        german = self._linearizers["de"].sentence(tree)
        pair = pair_of(english, german)
        nodes = tree.walk()
        lemmas = tuple(node.entry.lemma for node in nodes if node.entry is not None)
        return Derivation(pair, lemmas, tuple(self._held_out(nodes)))


def _read(path: Path) -> Any:
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def _values(node: Node, paths: tuple[str, ...]) -> Iterator[str]:
    """The entries (``object.noun``) and features (``$tense``) there, up to one that is not."""
    for path in paths:
        current: Node | None = node
        if path.startswith("$"):
            value = node.features.get(path[1:])
        else:
            for name in path.split("."):
                current = current.slots.get(name) if current is not None else None
            value = current.entry.name if current is not None and current.entry else None
        if value is None:
            return
        yield value
