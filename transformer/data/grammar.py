"""The synchronous grammar that makes the pocket corpus, and the corpus's splits.

It knows nothing of tokenizers or models. The lexicon and the rules are data: the YAML files
of a folder, described in data/pocket/README.md.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from transformer.data.derivation import Deriver, ImpossibleError, Node
from transformer.data.grammar_rule import SIDES, Rule, check_rules
from transformer.data.lexicon import Lexicon
from transformer.data.linearisation import Lineariser, Token
from transformer.data.verb_group import VerbGroups
from transformer.errors import InputError

DEFAULT_SIZES: Mapping[str, int] = {
    "train": 40_000,
    "validation": 500,
    "test": 1_000,
    "test_novel": 500,
}

LEXICON_FILES = ("nouns.yaml", "verbs.yaml", "adjectives.yaml", "words.yaml")
_NO_SPACE_BEFORE = re.compile(r" (?=[.,?!]|'s\b)")


@dataclass(frozen=True)
class Sentence:
    """One side of a pair: words (punctuation apart) and their Universal POS tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentence as it is written."""
        return _NO_SPACE_BEFORE.sub("", " ".join(self.words))


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation; links are (English word, German word), 0-based."""

    english: Sentence
    german: Sentence
    alignment: tuple[tuple[int, int], ...]


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
        self._linearisers = {
            side: Lineariser(
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
            InputError: a file is missing or malformed.
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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: {type(error).__name__}: {error}; mend the file") from error

    def derive(self, seed: int, category: str = "sentence", **features: str) -> Derivation:
        """One derivation, drawn with ``seed``, of a category with the features asked for.

        Raises:
            ImpossibleError: the grammar has none.
        """
        return self._derivation(Deriver(self.lexicon, self._rules, seed).derive(category, features))

    def derivations(self, seed: int) -> Iterator[Derivation]:
        """An endless stream of derivations; sentences recur."""
        deriver = Deriver(self.lexicon, self._rules, seed)
        while True:
            try:
                tree = deriver.derive("sentence")
            except ImpossibleError:
                continue
            derivation = self._derivation(tree)
            if len(derivation.pair.english.words) <= self._longest:
                yield derivation

    def _held_out(self, tree: Node) -> Iterator[str]:
        """The combinations in the tree whose CRC-32 is divisible by ``one_in``."""
        for node in tree.walk():
            if node.rule is None or node.rule.transparent:
                continue
            for paths, one_in in self._holdout.items():
                values = [_value(node, path) for path in paths]
                if None in values:
                    continue
                name = " + ".join([*paths, *map(str, values)])
                if zlib.crc32(name.encode()) % one_in == 0:
                    yield name

    def _derivation(self, tree: Node) -> Derivation:
        english = self._linearisers["en"].sentence(tree)
        german = self._linearisers["de"].sentence(tree)
        pair = SentencePair(_sentence(english), _sentence(german), _links(english, german))
        lemmas = tuple(node.entry.lemma for node in tree.walk() if node.entry is not None)
        return Derivation(pair, lemmas, tuple(self._held_out(tree)))


def _read(path: Path) -> Any:
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f":{place.line + 1}" if place is not None else ""
        raise InputError(f"{path}{line}: not valid YAML; mend the file") from error


def _value(node: Node, path: str) -> str | None:
    """An entry (``object.noun``) or a feature (``$tense``) of the node."""
    if path.startswith("$"):
        return node.features.get(path[1:])
    current: Node | None = node
    for name in path.split("."):
        current = current.slots.get(name) if current is not None else None
    return current.entry.name if current is not None and current.entry is not None else None


def _sentence(tokens: list[Token]) -> Sentence:
    return Sentence(tuple(t.word for t in tokens), tuple(t.tag for t in tokens))


def _links(english: list[Token], german: list[Token]) -> tuple[tuple[int, int], ...]:
    places: dict[tuple[int, str], list[int]] = {}
    for index, token in enumerate(german):
        for key in token.keys:
            places.setdefault(key, []).append(index)
    links = {
        (index, place)
        for index, token in enumerate(english)
        for key in token.keys
        for place in places.get(key, ())
    }
    return tuple(sorted(links))


def derive_splits(
    grammar: Grammar, seed: int = 1, sizes: Mapping[str, int] = DEFAULT_SIZES
) -> dict[str, list[Derivation]]:
    """The derivations behind :func:`generate_splits`."""
    known = {name: sizes[name] for name in ("validation", "test", "train")}
    seen: set[tuple[str, ...]] = set()
    ordinary: list[Derivation] = []
    novel: list[Derivation] = []
    words: Counter[str] = Counter()
    for derivation in grammar.derivations(seed):
        if len(ordinary) >= sum(known.values()) and len(novel) >= sizes["test_novel"]:
            break
        english = derivation.pair.english.words
        if english in seen:
            continue
        seen.add(english)
        (novel if derivation.held_out else ordinary).append(derivation)
    splits: dict[str, list[Derivation]] = {}
    start = 0
    for name, size in known.items():
        splits[name] = ordinary[start : start + size]
        start += size
    for derivation in splits["train"]:
        words.update(derivation.pair.english.words)
        words.update(derivation.pair.german.words)
    trained = [
        item
        for item in novel
        if all(word in words for word in item.pair.english.words + item.pair.german.words)
    ]
    splits["test_novel"] = trained[: sizes["test_novel"]]
    return {name: splits[name] for name in sizes}


def generate_splits(
    grammar: Grammar, seed: int = 1, sizes: Mapping[str, int] = DEFAULT_SIZES
) -> dict[str, list[SentencePair]]:
    """Sentence pairs of train, validation, test and test_novel; no source sentence twice.

    test_novel has only words of train, but in each sentence a combination of words, or of a
    word and a construction, that the other splits never contain.
    """
    splits = derive_splits(grammar, seed, sizes)
    return {name: [item.pair for item in items] for name, items in splits.items()}
