"""Tags: symbols before the source or between the sentences of a document.

Their ids follow the subwords, and their names have a space, which no subword has. Johnson et al.
2017 (Q17-1024): target languages; Caswell et al. 2019 (W19-5206): tagged back-translation;
Tiedemann and Scherrer 2017 (W17-4811): documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from transformer.common.errors import InputError, raise_objections, some_of

SENTENCE_END = "\n"
"""Between the sentences of a document in one text; a line of a file never has it."""

_SEPARATOR = "< >"
_BEGIN = "< begin>"
_SYMBOL = "< {}>"
_TARGET = "<2 {}>"
_CORPUS = "<tag {}>"


class SourceTags(NamedTuple):
    """Tags before one source text."""

    target: str | None = None
    tag: str | None = None
    """Tag of the corpus whose kind of text this is."""
    source: str | None = None
    """Code of its own language (`Tags.both_sides`)."""

    def over(self, default: "SourceTags") -> "SourceTags":
        """Return these tags; a tag that is None comes from ``default``."""
        return SourceTags(
            *(fallback if tag is None else tag for tag, fallback in zip(self, default, strict=True))
        )


UNTAGGED = SourceTags()


class TaggedText(str):
    """A source text with its tags; every operation on the text loses them."""

    tags: SourceTags

    def __new__(cls, text: str, tags: SourceTags = UNTAGGED) -> Any:  # of a class that derives
        """Add tags to a text; without them only to unpickle it."""
        tagged = super().__new__(cls, text)
        tagged.tags = tags
        return tagged

    def with_tags(self, tags: SourceTags) -> "TaggedText":
        """Return the text with other tags."""
        return TaggedText(self, tags)


def parse_tags(text: str) -> SourceTags:
    """Return the tags of a text; a plain string has none."""
    return text.tags if isinstance(text, TaggedText) else UNTAGGED


def with_tags(text: str, tags: SourceTags) -> str:
    """Return the text with these tags, if there are any."""
    if tags == UNTAGGED:
        return text
    return text.with_tags(tags) if isinstance(text, TaggedText) else TaggedText(text, tags)


def is_tag(subword: str) -> bool:
    """Whether a symbol, as the vocabulary spells it, is a tag."""
    return " " in subword


TRANSCRIBE, TRANSLATE, NO_TIMES = "transcribe", "translate", "notimestamps"
"""Symbols of `SpeechTags`, as Whisper names them."""

NO_SPEECH = ("nospeech", "nocaptions")
"""Names of the symbol of a sound without speech, in later and in the first models."""

TRANSLATES_TO = "en"
"""The language into which Whisper translates."""

TIME_STEP = 0.02
"""Seconds from one time to the next."""


@dataclass(frozen=True)
class SpeechTags:
    """Symbols of the targets of Whisper (Radford et al. 2022, section 2.3).

    A target begins with the language of the sound and the task, in a model of several languages;
    then with the symbol of a text without times, or else with a time. An imported model has them.
    """

    symbols: tuple[str, ...] = ()
    """Names of all symbols beside languages and times, of unused ones, too."""
    times: int = 0
    """Number of times, from 0 s, `TIME_STEP` apart."""
    never: tuple[int, ...] = ()
    """Ids of subwords that no target has."""
    never_first: tuple[int, ...] = ()
    """Ids of subwords that no target begins with."""

    @property
    def spelled(self) -> tuple[str, ...]:
        """The symbols and the times as a vocabulary spells them."""
        times = [f"{TIME_STEP * number:.2f}" for number in range(self.times)]
        return tuple(map(_SYMBOL.format, (*self.symbols, *times)))


@dataclass(frozen=True)
class Tags:
    """The tags of a vocabulary, in their order."""

    targets: tuple[str, ...] = ()
    """Codes of the languages to translate into; if there are any, each source has one."""
    corpora: tuple[str, ...] = ()
    optional: bool = True
    """Whether a source may have no corpus tag."""
    sentences: int = 0
    """Maximum number of sentences of a document in one text; 0: no separator."""
    subwords: int = 0
    """Maximum number of their subwords on a side, with separators; one sentence may have more."""
    both_sides: bool = False
    """Each side begins with the tag of its own language, of ``targets`` (Fan et al. 2021, "Beyond
    English-Centric Multilingual Machine Translation", section 2.1), not the source with the tag of
    the target language. The search does not choose the tag of the target: it is given."""
    begin: bool = field(default=False, repr=False)
    """Both sides of every pair begin with one and the same symbol, the ``<s>`` of BART (Lewis et
    al. 2020); it is given, too. An imported model has it."""
    speech: SpeechTags | None = field(default=None, repr=False)
    """The symbols of a model of speech; with ``targets`` it is one of several languages."""

    @property
    def given(self) -> int:
        """Number of tags that each target begins with."""
        if self.speech is not None:
            return 1 + 2 * self.both_sides
        return self.begin + self.both_sides

    @cached_property
    def spelled(self) -> tuple[str, ...]:
        """All tags as a vocabulary spells them, in the order of their ids."""
        names = []
        if self.sentences:
            names.append(_SEPARATOR)
        if self.begin:
            names.append(_BEGIN)
        names += map(_TARGET.format, self.targets)
        names += map(_CORPUS.format, self.corpora)
        if self.speech is not None:
            names += self.speech.spelled
        return tuple(names)

    def indices(self, tags: SourceTags) -> list[int]:
        """The indices in `spelled` of a source's tags; raises InputError if one is missing."""
        raise_objections(self._objections(tags, required=True))
        language = tags.source if self.both_sides else tags.target
        names = [_BEGIN] if self.begin else []
        if language is not None:
            names.append(_TARGET.format(language))
        if tags.tag is not None:
            names.append(_CORPUS.format(tags.tag))
        return [self.spelled.index(name) for name in names]

    def target_indices(self, tags: SourceTags) -> list[int]:
        """Return the indices in `spelled` of the target's tags; raises InputError as `indices`."""
        names = [_BEGIN] if self.begin else []
        if self.both_sides:
            self.indices(tags)  # raises InputError if one is missing
            names.append(_TARGET.format(tags.target))
        if self.speech is not None:
            names = self._speech_names(self.with_languages(tags))
        return [self.spelled.index(name) for name in names]

    @property
    def detects_language(self) -> bool:
        """Whether the language of a sound may be unknown: the model detects it."""
        return self.speech is not None and self.both_sides

    def with_languages(self, tags: SourceTags) -> SourceTags:
        """Add the tags that follow from the others; without a source, the model must detect it.

        A sound is written down in its own language, unless the target is `TRANSLATES_TO`.
        """
        source = tags.source
        if source is None and tags.target != TRANSLATES_TO:
            source = tags.target
        return tags._replace(source=source, target=tags.target or source)

    def _speech_names(self, tags: SourceTags) -> list[str]:
        names = [_SYMBOL.format(NO_TIMES)]
        if self.both_sides:
            if tags.source is None:
                raise InputError("the language of the sound is not known; set from=")
            same = tags.source == tags.target
            if not same and tags.target != TRANSLATES_TO:
                choices = " or ".join(
                    f"to={code}" for code in dict.fromkeys((tags.source, TRANSLATES_TO))
                )
                raise InputError(
                    f"from={tags.source} to={tags.target}: the model writes speech down in its own "
                    f"language, or translates it into {TRANSLATES_TO}; set {choices}"
                )
            task = TRANSCRIBE if same else TRANSLATE
            names = [_TARGET.format(tags.source), _SYMBOL.format(task), *names]
        return names

    @property
    def first_time(self) -> int:
        """The index in `spelled` of the time of 0 s; the others follow it."""
        return len(self.spelled) - (self.speech.times if self.speech else 0)

    @property
    def no_speech(self) -> int | None:
        """The index in `spelled` of the symbol of a sound without speech, if there is one."""
        names = map(_SYMBOL.format, NO_SPEECH)
        return next((self.spelled.index(name) for name in names if name in self.spelled), None)

    def check_known(self, tags: SourceTags) -> None:
        """Raise an InputError for tags that the vocabulary does not have."""
        raise_objections(self._objections(tags))

    def _objections(self, tags: SourceTags, required: bool = False) -> Iterator[str]:
        for key, value, names in (
            ("to", tags.target, self.targets),
            ("from", tags.source, self.targets if self.both_sides else ()),
            ("tag", tags.tag, self.corpora),
        ):
            optional = not required or (self.optional if key == "tag" else self.detects_language)
            if value is not None and value not in names:
                known = f"set {key}= to {some_of(names, ' or ')}" if names else f"leave {key}= out"
                yield f"{key}={value} is not a tag of the model; {known}"
            elif value is None and names and not optional:
                yield f"each source needs one of the tags {some_of(names)}; set {key}={names[0]}"

    def extended(self, new: "Tags") -> "Tags":
        """Return these tags, followed by additional tags of another run."""
        return replace(
            self,
            targets=tuple(dict.fromkeys((*self.targets, *new.targets))),
            corpora=tuple(dict.fromkeys((*self.corpora, *new.corpora))),
        )

    def check_same_tags(self, known: "Tags") -> None:
        """Raise an InputError if a resumed or fine-tuned run has other tags than the vocabulary."""
        same_settings = (
            bool(self.targets) == bool(known.targets)
            and self.both_sides == known.both_sides
            and self.sentences == known.sentences
            and self.subwords == known.subwords
        )
        if not same_settings or not {*self.spelled} <= {*known.spelled}:
            target_tag = "both" if known.both_sides else str(bool(known.targets)).lower()
            raise InputError(
                f"the run has data.target_tag={target_tag} data.documents="
                f"{known.sentences or 'null'} data.max_length={known.subwords or 'any'} and the "
                f"tags {', '.join(known.spelled) or 'none'}; a resumed or fine-tuned run cannot "
                "change them, nor a resumed run add tags (here "
                f"{', '.join(self.spelled) or 'none'})"
            )
