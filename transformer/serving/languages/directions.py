"""From which language to which a model translates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer.common.errors import InputError
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, with_tags
from transformer.decoding.translation.translator import Translator

_ALIASES = {"zh": "zh-hans", "zt": "zh-hant", "pb": "pt-br"}
"""Codes of LibreTranslate."""

_OF_SENTENCES = ("bleu", "chrf", "ter", "gleu", "comet", "custom")
"""Metrics; those of summaries, answers and single words are of whole lines."""


@dataclass(frozen=True)
class Direction:
    """A source and a target language, by lower-case codes such as ``en`` or ``zh-hans``.

    Attributes:
        translator: Of the model that translates so; several directions may share it.
        tags: Before each source, to tell the model the direction.
        sentences: Whether a text is cut into sentences, else at line ends alone.
    """

    source: str
    target: str
    translator: Translator
    tags: SourceTags = UNTAGGED
    sentences: bool = True

    @property
    def whole_lines(self) -> bool:
        """Whether each line is translated as it is, as ``translate`` does."""
        # A source with features is a line, with a tab in it.
        return not self.sentences or self.translator.tokenizer.config.features is not None

    def length(self, text: str) -> int:
        """Tokens of a source text, with its tags and its end."""
        [subwords] = self.translator.tokenizer.encode_source([with_tags(text, self.tags)])
        return len(subwords) + 1


class Directions:
    """All directions of a service; raises InputError if two models have one direction."""

    def __init__(self, directions: Iterable[Direction]) -> None:
        self.all = tuple(directions)
        self.by_codes: dict[tuple[str, str], Direction] = {}
        for one in self.all:
            pair = one.source, one.target
            if pair in self.by_codes:
                raise InputError(
                    f"two models translate from {one.source} to {one.target}; name the languages "
                    "of each: languages=[en-de,de-en]"
                )
            self.by_codes[pair] = one
        self.sources = tuple(dict.fromkeys(one.source for one in self.all))
        self.targets = tuple(dict.fromkeys(one.target for one in self.all))

    def code(self, asked: str, known: Sequence[str]) -> str | None:
        """The known code that a client means: that code itself, an alias, or the only variant."""
        asked = asked.lower().replace("_", "-")
        asked = asked if asked in known else _ALIASES.get(asked, asked)
        if asked in known:
            return asked
        base = asked.partition("-")[0]
        variants = [code for code in known if code.partition("-")[0] == base]
        return variants[0] if len(variants) == 1 else None


def trained_directions(
    translator: Translator,
    config: Mapping[str, Any],
    named: str | None = None,
    sentences: bool | None = None,
) -> Iterator[Direction]:
    """The directions of a model.

    Args:
        config: Of the run that trained it; ``data.source``, ``data.target`` and those of
            ``data.corpora`` are the codes.
        named: ``SOURCE-TARGET`` in place of them, for a model of one direction; raises InputError
            if it cannot be.
        sentences: Of each direction; None is true where the metric that chose the checkpoint is one
            of translated sentences.
    """
    if sentences is None:
        sentences = config.get("metrics", {}).get("choose", "bleu") in _OF_SENTENCES
    tags = translator.tokenizer.tags
    codes = {_lower(code): code for code in tags.targets}
    # A model that must be before the kind of text is before the first.
    kind = tags.corpora[0] if tags.corpora and not tags.optional else None
    if named is not None:
        source, dash, target = (_lower(part) for part in named.rpartition("-"))
        known = {source, target} <= codes.keys() if tags.both_sides else not tags.targets
        if not dash or not source or not target or not known:
            raise InputError(
                f"languages={named} must be SOURCE-TARGET, such as en-de, of a model of one "
                "direction, or languages that the model has tags of on both sides; another model "
                "with target tags knows its languages"
            )
        before = SourceTags(codes.get(target), kind, codes.get(source))
        yield Direction(source, target, translator, before, sentences)
        return
    data = config["data"]
    corpora = (data.get("corpora") or {"": {}}).values()
    pairs = {
        (one.get("source") or data["source"], one.get("target") or data["target"])
        for one in corpora
    }
    for source, target in sorted(pairs):
        before = SourceTags(codes.get(_lower(target)), kind, codes.get(_lower(source)))
        if not tags.both_sides:
            before = before._replace(source=None)
        yield Direction(_lower(source), _lower(target), translator, before, sentences)


def _lower(code: str) -> str:
    """A code as clients write it: ``eng-latn`` for ``eng_Latn``."""
    return code.lower().replace("_", "-")
