"""Tags: symbols beside the text, before the source or between the sentences of a document.

A tag is an id of its own after the subword vocabulary, which no text can spell; its written form
holds a space, which no piece does. Does not know the vocabulary, nor which corpus has which tag.
Target languages: Johnson et al. 2017, https://aclanthology.org/Q17-1024; tagged back-translation:
Caswell et al. 2019, https://aclanthology.org/W19-5206; documents: Tiedemann and Scherrer 2017,
https://aclanthology.org/W17-4811.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from transformer.common.errors import InputError

SENTENCE_END = "\n"
"""Between the sentences of a document in one text; a line of a file never holds it."""

# Each with a space, which no subword holds.
_SEPARATOR, _TARGET, _CORPUS = "< >", "<2 {}>", "<tag {}>"


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


def parse_tags(text: str) -> SourceTags:
    """The tags that a text has with it; none of a plain string."""
    return text.tags if isinstance(text, TaggedText) else UNTAGGED


def with_tags(text: str, tags: SourceTags) -> str:
    """The text with these tags, where there are any."""
    return text if tags == UNTAGGED else TaggedText(text, tags)


def is_tag(subword: str) -> bool:
    """Whether a piece, as the vocabulary writes it, is a tag: no subword holds a space."""
    return " " in subword


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
    subwords: int = 0
    """The most pieces of them on a side, separators included; a single sentence may have more."""

    @cached_property
    def spelt(self) -> tuple[str, ...]:
        """All tags as a vocabulary writes them, in the order of their ids."""
        return (
            *([_SEPARATOR] if self.sentences else []),
            *map(_TARGET.format, self.targets),
            *map(_CORPUS.format, self.corpora),
        )

    def to_state(self) -> dict[str, Any]:
        """Return plain values."""
        values = asdict(self)
        return values | {key: list(values[key]) for key in ("targets", "corpora")}

    def indices(self, wanted: SourceTags) -> list[int]:
        """Return the places, among the tags, of what stands before a source.

        Raises:
            InputError: a tag is unknown, or one that every source has is missing.
        """
        self.check_known(wanted)
        if self.targets and wanted.target is None:
            raise InputError(
                f"the model translates to {' or '.join(self.targets)}; say to which, with "
                f"to={self.targets[0]}"
            )
        if self.corpora and not self.optional and wanted.tag is None:
            raise InputError(
                f"each text has one of the tags {', '.join(self.corpora)}; say which, with "
                f"tag={self.corpora[0]}"
            )
        found = [] if wanted.target is None else [_TARGET.format(wanted.target)]
        found += [] if wanted.tag is None else [_CORPUS.format(wanted.tag)]
        return [self.spelt.index(one) for one in found]

    def check_known(self, wanted: SourceTags) -> None:
        """Refuse tags that the vocabulary does not have.

        Raises:
            InputError: there is one.
        """
        for key, value, names in (
            ("to", wanted.target, self.targets),
            ("tag", wanted.tag, self.corpora),
        ):
            if value is not None and value not in names:
                known = f"set {key}= to {' or '.join(names)}" if names else f"leave {key}= out"
                raise InputError(f"{key}={value} is not a tag of the model; {known}")

    def check_same_tags(self, known: "Tags") -> None:
        """Refuse to go on with the tags of a vocabulary that lacks some of these.

        Raises:
            InputError: one is not known, target languages are not said, or documents are joined
                in another way.
        """
        for name in self.spelt:
            if name not in known.spelt:
                has = ", ".join(known.spelt) or "none"
                raise InputError(
                    f"the run has the tags {has}, and not {name}: a vocabulary grows no tag while "
                    "a run goes on, nor in fine-tuning; begin a new run"
                )
        if known.targets and not self.targets:
            raise InputError(
                f"each source has a tag of its target language, {' or '.join(known.targets)}; set "
                "data.target_tag=true"
            )
        if (self.sentences, self.subwords) != (known.sentences, known.subwords):
            raise InputError(
                f"the run has data.documents={known.sentences or 'null'} data.max_length="
                f"{known.subwords}, which cannot change while it goes on, nor in fine-tuning"
            )
