"""Tags: symbols beside the text, before the source or between the sentences of a document.

A tag is an id of its own after the subword vocabulary, which no text can spell; its written form
holds a space, which no piece does. Does not know the vocabulary, nor which corpus has which tag.
Target languages: Johnson et al. 2017, https://aclanthology.org/Q17-1024; tagged back-translation:
Caswell et al. 2019, https://aclanthology.org/W19-5206; documents: Tiedemann and Scherrer 2017,
https://aclanthology.org/W17-4811.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from transformer.errors import InputError

SENTENCE_END = "\n"
"""Between the sentences of a document in one text; a line of a file never holds it."""

_SEPARATOR = "separator"


class SourceTags(NamedTuple):
    """What stands before one source text."""

    target: str | None = None
    """Code of the language to translate into."""
    tag: str | None = None
    """Of the corpus that it is like."""

    def over(self, others: "SourceTags") -> "SourceTags":
        """These, and where one is not said that of the others."""
        return SourceTags(
            others.target if self.target is None else self.target,
            others.tag if self.tag is None else self.tag,
        )


UNTAGGED = SourceTags()


class TaggedText(str):
    """A source text that knows its tags; whatever changes the text loses them."""

    tags: SourceTags

    def __new__(cls, text: str, tags: SourceTags) -> "TaggedText":
        """Put tags to a text."""
        tagged = super().__new__(cls, text)
        tagged.tags = tags
        return tagged

    def __reduce__(self) -> tuple[type["TaggedText"], tuple[str, SourceTags]]:
        """Travel to another process with the tags."""
        return type(self), (str(self), self.tags)


def tags_of(text: str) -> SourceTags:
    """The tags that a text has with it; none of a plain string."""
    return text.tags if isinstance(text, TaggedText) else UNTAGGED


def with_tags(text: str, tags: SourceTags) -> str:
    """The text with these tags, where there are any."""
    return text if tags == UNTAGGED else TaggedText(text, tags)


def is_tag(piece: str) -> bool:
    """Whether a piece, as the vocabulary writes it, is a tag: no subword holds a space."""
    return " " in piece


@dataclass(frozen=True)
class Tags:
    """The tags of a vocabulary, in their order."""

    targets: tuple[str, ...] = ()
    """Codes of the languages to translate into; where there are any, each source has one."""
    corpora: tuple[str, ...] = ()
    """Tags of corpora."""
    optional: bool = True
    """Whether some corpus has no tag of its own, so that a source may have none."""
    sentences: int = 0
    """The most sentences of a document that are read at once; 0: no separator."""
    pieces: int = 0
    """The most pieces of them on a side, separators included; a single sentence may have more."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> "Tags":
        """Rebuild from plain values; None, as of an older tokenizer, has no tags."""
        if state is None:
            return cls()
        names = {key: tuple(state[key]) for key in ("targets", "corpora")}
        return cls(**{**state, **names})

    @cached_property
    def spelt(self) -> tuple[str, ...]:
        """All tags as a vocabulary writes them, in the order of their ids."""
        separator = [f"<{_SEPARATOR} >"] if self.sentences else []
        targets = [f"<2{code} >" for code in self.targets]
        return *separator, *targets, *(f"<tag {name}>" for name in self.corpora)

    def to_state(self) -> dict[str, Any]:
        """Return plain values, which `from_state` reads."""
        values = asdict(self)
        return values | {key: list(values[key]) for key in ("targets", "corpora")}

    def places(self, wanted: SourceTags) -> list[int]:
        """Return the places, among the tags, of what stands before a source.

        Raises:
            InputError: a tag is unknown, or one that every source has is missing.
        """
        target = self._known(wanted.target, self.targets, "target", bool(self.targets))
        needed = bool(self.corpora) and not self.optional
        tag = self._known(wanted.tag, self.corpora, "tag", needed)
        spelt = [*(f"<2{code} >" for code in target), *(f"<tag {name}>" for name in tag)]
        return [self.spelt.index(one) for one in spelt]

    def _known(
        self, wanted: str | None, names: tuple[str, ...], key: str, needed: bool
    ) -> list[str]:
        known = " or ".join(names)
        if wanted is None:
            if needed:
                raise InputError(f"the model was trained with {key}s; set {key}= to {known}")
            return []
        if not names:
            raise InputError(f"{key}={wanted}: the model was trained without any; leave {key}= out")
        if wanted not in names:
            raise InputError(f"{key}={wanted} is unknown to the model; set {key}= to {known}")
        return [wanted]
