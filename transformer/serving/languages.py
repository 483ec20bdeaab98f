"""The directions of a service, and the language of a text (Lui and Baldwin 2012: langid.py)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from transformer.common.errors import InputError
from transformer.common.language_names import short_code
from transformer.data.tokenization.tags import UNTAGGED, SourceTags, with_tags
from transformer.decoding.long_inputs import has_sentences
from transformer.decoding.translator import Translator, torch_engine
from transformer.quality.failures.flagging import Flagging
from transformer.settings.decoding import NEUTRAL
from transformer.settings.run import RunConfig

_ALIASES = {"zh": "zh-hans", "zt": "zh-hant", "pb": "pt-br"}
"""Codes of LibreTranslate."""

_SAMPLE = 2000
"""The first characters of a text decide its language."""


@dataclass(frozen=True)
class Direction:
    """Languages as lower-case codes; without ``sentences``, a text is cut at line ends alone."""

    source: str
    target: str
    translator: Translator
    tags: SourceTags = UNTAGGED
    sentences: bool = True
    flagging: Flagging | None = None
    _wider: dict[int, "Direction"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _sampled: dict[float, "Direction"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _between: dict[SourceTags, "Direction"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def wider(self, nbest: int) -> "Direction":
        """The direction with an n-best list; made once, so that caches stay.

        It is that of a beam search, or of minimum Bayes risk where this is the search.
        """
        if nbest not in self._wider:
            search = self.translator.search
            changes: dict[str, Any] = {"nbest": min(nbest, search.candidates)}
            if search.algorithm != "mbr":
                width = max(nbest, search.beam_size)
                changes = {**NEUTRAL, "algorithm": "beam", "nbest": nbest, "beam_size": width}
            wide = replace(search, **changes)
            translator = replace(self.translator, search=wide, engine=torch_engine)
            flagging = self.flagging and replace(self.flagging, translator=translator)
            self._wider[nbest] = replace(self, translator=translator, flagging=flagging)
        return self._wider[nbest]

    def sampled(self, temperature: float) -> "Direction":
        """The direction with one sample at this temperature, of the text and the search's seed.

        Made once for each temperature, so that requests share batches.
        """
        if temperature not in self._sampled:
            changes: dict[str, Any] = {"algorithm": "sampling", "beam_size": 1, "nbest": 1}
            search = replace(
                self.translator.search, **{**NEUTRAL, **changes, "temperature": temperature}
            )
            translator = replace(self.translator, search=search)
            self._sampled[temperature] = replace(self, translator=translator, flagging=None)
        return self._sampled[temperature]

    @property
    def sound_languages(self) -> dict[str, str]:
        """Languages of sound that the model detects, as Whisper: codes for clients, and its own."""
        tags = self.translator.tokenizer.tags
        return {_lower(code): code for code in tags.targets} if tags.detects_language else {}

    def between(self, source: str | None, target: str | None) -> "Direction":
        """The direction from a language of sound, or a detected one, to a target, or to the same.

        The languages are codes of the model. Made once, so that requests share batches.
        """
        tags = self.tags._replace(source=source, target=target)
        if tags not in self._between:
            codes = [_lower(code or source or self.target) for code in (source, target)]
            self._between[tags] = replace(self, source=codes[0], target=codes[1], tags=tags)
        return self._between[tags]

    @property
    def kind(self) -> str:
        """What a source is: ``text``, or the kind of its files (``data.source_kind``)."""
        tokenizer = self.translator.tokenizer
        return tokenizer.config.algorithms[0] if tokenizer.reads_files else "text"

    def require_text(self) -> None:
        """Raise InputError if a source is a file: no client may name one of the server's."""
        if self.kind != "text":
            raise InputError(
                f"the model from {self.source} to {self.target} reads sound, not text; send a file "
                "to /v1/audio/transcriptions"
            )

    @property
    def whole_lines(self) -> bool:
        """Whether each line is translated whole; so are sources with features after a tab."""
        return not self.sentences or self.translator.tokenizer.config.features is not None

    @property
    def marks_failures(self) -> bool:
        """Whether answers have the flags of translations."""
        return self.flagging is not None and self.flagging.on_failure is not None

    def length(self, text: str) -> int:
        """Tokens of a source text, with its tags and its end; InputError if sources are files."""
        self.require_text()
        [subwords] = self.translator.tokenizer.encode_source([with_tags(text, self.tags)])
        return len(subwords) + 1


class Directions:
    """All directions of a service; raises InputError if two models have the same direction."""

    def __init__(self, directions: Iterable[Direction]) -> None:
        self.all = tuple(directions)
        self.by_codes = {(direction.source, direction.target): direction for direction in self.all}
        if len(self.by_codes) < len(self.all):
            pairs = ", ".join(f"{direction.source}-{direction.target}" for direction in self.all)
            raise InputError(
                f"two models have the same direction ({pairs}); name the languages of each: "
                "languages=[en-de,de-en]"
            )
        self.sources = tuple(dict.fromkeys(direction.source for direction in self.all))
        self.targets = tuple(dict.fromkeys(direction.target for direction in self.all))

    def require_text(self) -> None:
        """Raise InputError if no direction reads text: a wrong language is not the error then."""
        if all(direction.kind != "text" for direction in self.all):
            self.all[0].require_text()

    def code(self, asked: str, known: Sequence[str]) -> str | None:
        """The known code for the code of a client: the same, its alias, or the only variant."""
        code = asked.lower().replace("_", "-")
        if code not in known:
            code = _ALIASES.get(code, code)
        if code in known:
            return code
        base = code.partition("-")[0]
        variants = [variant for variant in known if variant.partition("-")[0] == base]
        return variants[0] if len(variants) == 1 else None


def trained_directions(
    translator: Translator,
    config: RunConfig,
    languages: str | None = None,
    sentences: bool | None = None,
) -> Iterator[Direction]:
    """The directions of a model.

    Without ``languages``, SOURCE-TARGET, they are those of its data. Without ``sentences``, its
    metric says whether a text is cut into sentences.
    """
    if sentences is None:
        sentences = has_sentences(config)
    tags = translator.tokenizer.tags
    codes = {_lower(code): code for code in tags.targets}

    # A mandatory tag of the kind of text is the first one.
    kind = tags.corpora[0] if tags.corpora and not tags.optional else None

    def direction(source: str, target: str) -> Direction:
        source_tag = codes.get(source) if tags.both_sides else None
        source_tags = SourceTags(codes.get(target), kind, source_tag)
        return Direction(source, target, translator, source_tags, sentences)

    if languages is not None:
        source, dash, target = (_lower(part) for part in languages.rpartition("-"))
        known = {source, target} <= codes.keys() if tags.both_sides else not tags.targets
        if not dash or not source or not target or not known:
            raise InputError(
                f"languages={languages} must be SOURCE-TARGET, such as en-de, of a model of one "
                "direction, or languages that the model has tags of on both sides; another model "
                "with target tags knows its languages"
            )
        yield direction(source, target)
        return
    for source, target in sorted(config.data.language_pairs):
        yield direction(_lower(source), _lower(target))


def _lower(code: str) -> str:
    """The code for clients: ``eng-latn`` for ``eng_Latn``."""
    return code.lower().replace("_", "-")


class Detected(NamedTuple):
    """A language and its probability in percent."""

    language: str
    confidence: float


def _detected_code(code: str) -> str:
    """The code of py3langid: ``zh`` for ``zh-hans``, ``en`` for ``eng-latn``."""
    return short_code(code.partition("-")[0])


class Detector:
    """Detects the languages of a service, as far as py3langid knows them."""

    def __init__(self, languages: Sequence[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._codes = {_detected_code(code): code for code in reversed(languages)}
        self._only = languages[0] if len(languages) == 1 else None
        known = [code for code in self._codes if code in self._identifier.labels]
        if known and self._only is None:
            self._identifier.set_languages(known)

    def detect(self, text: str) -> list[Detected]:
        """The likeliest language first; none without a letter, unless a service has only one."""
        text = text[:_SAMPLE]
        ranked = self._identifier.rank(text) if any(map(str.isalpha, text)) else []
        if self._only is not None:
            probability = dict(ranked).get(_detected_code(self._only), 0.0)
            return [Detected(self._only, round(100.0 * float(probability), 1))]
        return [
            Detected(self._codes[code], round(100.0 * float(probability), 1))
            for code, probability in ranked
            if code in self._codes
        ]
