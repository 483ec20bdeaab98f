"""The synchronous grammar that makes the pocket corpus, and the corpus's splits.

It knows nothing of tokenizers or models. The lexicon and the rules are data: the YAML files
of a folder, described in data/pocket/README.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import yaml

from transformer.common.errors import InputError
from transformer.data.choice import Choice, RandomChoice
from transformer.data.derivation import Deriver, ImpossibleError, Node
from transformer.data.grammar_rule import SIDES, Rule, check_rules
from transformer.data.lexicon import Lexicon
from transformer.data.linearisation import Lineariser
from transformer.data.sentence_pair import Sentence, SentencePair, pair_of
from transformer.data.verb_group import VerbGroups

__all__ = [
    "DEFAULT_SIZES",
    "Derivation",
    "Grammar",
    "Sentence",
    "SentencePair",
    "derive_splits",
    "generate_splits",
]

DEFAULT_SIZES: Mapping[str, int] = {
    "train": 40_000,
    "validation": 500,
    "test": 1_000,
    "test_novel": 500,
}

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

    def derive(self, choice: Choice, category: str = "sentence") -> Derivation:
        """The derivation of a category that ``choice`` makes.

        Raises:
            ImpossibleError: the grammar has none.
        """
        return self._derivation(Deriver(self.lexicon, self._rules, choice).derive(category))

    def derivations(self, seed: int) -> Iterator[Derivation]:
        """An endless stream of derivations; sentences recur."""
        deriver = Deriver(self.lexicon, self._rules, RandomChoice(seed))
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
        english = self._linearisers["en"].sentence(tree)
        german = self._linearisers["de"].sentence(tree)
        pair = pair_of(english, german)
        nodes = tree.walk()
        lemmas = tuple(node.entry.lemma for node in nodes if node.entry is not None)
        return Derivation(pair, lemmas, tuple(self._held_out(nodes)))


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


def derive_splits(
    grammar: Grammar, seed: int = 1, sizes: Mapping[str, int] = DEFAULT_SIZES
) -> dict[str, list[Derivation]]:
    """The derivations behind :func:`generate_splits`.

    Raises:
        ValueError: the training split is too small to know the words of test_novel.
    """
    stream = _distinct(grammar.derivations(seed))
    ordinary: list[Derivation] = []
    novel: list[Derivation] = []
    wanted = sizes["validation"] + sizes["test"] + sizes["train"]
    while len(ordinary) < wanted:
        derivation = next(stream)
        (novel if derivation.held_out else ordinary).append(derivation)
    test_from, train_from = sizes["validation"], sizes["validation"] + sizes["test"]
    splits = {
        "train": ordinary[train_from:],
        "validation": ordinary[:test_from],
        "test": ordinary[test_from:train_from],
    }
    known = {part for item in splits["train"] for part in _parts(item)}
    later = (item for item in islice(stream, 2 * wanted) if item.held_out)
    understood = (item for item in chain(novel, later) if known.issuperset(_parts(item)))
    splits["test_novel"] = list(islice(understood, sizes["test_novel"]))
    if len(splits["test_novel"]) < sizes["test_novel"]:
        raise ValueError(f"{sizes['train']} pairs of train know too few words for test_novel")
    return splits


def _distinct(derivations: Iterable[Derivation]) -> Iterator[Derivation]:
    """Each English sentence once."""
    seen: set[tuple[str, ...]] = set()
    for derivation in derivations:
        if derivation.pair.english.words not in seen:
            seen.add(derivation.pair.english.words)
            yield derivation


def _parts(derivation: Derivation) -> Iterator[str]:
    """Entries and words of a derivation."""
    yield from derivation.lemmas
    yield from (f"en {word}" for word in derivation.pair.english.words)
    yield from (f"de {word}" for word in derivation.pair.german.words)


def generate_splits(
    grammar: Grammar, seed: int = 1, sizes: Mapping[str, int] = DEFAULT_SIZES
) -> dict[str, list[SentencePair]]:
    """Sentence pairs of train, validation, test and test_novel; no source sentence twice.

    test_novel has only words of train, but in each sentence a combination of words, or of a
    word and a construction, that the other splits never contain.
    """
    splits = derive_splits(grammar, seed, sizes)
    return {name: [item.pair for item in items] for name, items in splits.items()}
