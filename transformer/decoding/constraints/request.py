"""Requests: texts with the constraints of their translations."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from transformer.common.errors import InputError, errors_name, raise_objections
from transformer.common.schema import typed, typed_value
from transformer.data.text.phrases import occurs, one_line, without
from transformer.data.tokenization.tags import SourceTags, with_tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.batching import without_end

Term = tuple[str, str]
"""A phrase of the source, and the phrase that must translate it."""


def terms_in(text: str, terms: Iterable[Term]) -> tuple[Term, ...]:
    """The terms whose phrase occurs in a text, and not only where a longer phrase does.

    Of ``dog`` and ``guide dog``, "a guide dog" has the second alone.
    """
    text = one_line(text)
    candidates = [term for term in terms if one_line(term[0]) in text]
    phrases: set[str] = set()
    # The longest first: its words are no occurrence of a shorter phrase.
    for phrase in sorted({one_line(phrase) for phrase, _ in candidates}, key=len, reverse=True):
        if occurs(phrase, text):
            phrases.add(phrase)
            text = without(phrase, text)
    return tuple(term for term in candidates if one_line(term[0]) in phrases)


@dataclass(frozen=True)
class Constraints:
    """Constraints of one translation, case-sensitive."""

    prefix: str = ""
    """The translation begins with this text. It may end inside a word, which then
    continues in any way; a space at its end ends the word."""
    must: tuple[str, ...] = ()
    """Phrases that occur in the translation, between the edges of words (``occurs``)."""
    never: tuple[str, ...] = ()
    """Phrases that do not occur in it: ``der`` does not rule out "wieder"."""
    terms: tuple[Term, ...] = ()
    """Where the source has the first phrase of a term, the second is required, and the model's own
    translation of the first is forbidden if its word links show it (``terms.py``)."""

    def __post_init__(self) -> None:
        raise_objections(_contradictions(self))

    def __bool__(self) -> bool:
        return bool(self.prefix.strip() or self.must or self.never or self.terms)

    def on_source(self, source: str) -> "Constraints | None":
        """The constraints with those terms alone that this source has; None if nothing is left."""
        return replace(self, terms=terms_in(source, self.terms)) or None

    def with_terms_required(self, model_words: Sequence[str] = ()) -> "Constraints":
        """Constraints without terms: their phrases are required, and the ``model_words`` forbidden.

        ``model_words`` are the model's own translations of the terms. A word that a required
        phrase or the prefix has stays allowed.
        """
        must = tuple(dict.fromkeys((*self.must, *(target for _, target in self.terms))))
        fixed = (*must, self.prefix)
        forbidden = [
            word for word in model_words if not any(occurs(word, phrase) for phrase in fixed)
        ]
        return Constraints(self.prefix, must, (*self.never, *forbidden))

    def unmet(self, text: str) -> tuple[str, ...]:
        """The constraints that a translation violates, such as ``must: Haus``, also for a term."""
        # If the prefix ends in a space, a word must end there, or the text.
        beginning = one_line(self.prefix) + (" " if self.closes_word else "")
        unmet = []
        if not f"{one_line(text)} ".startswith(beginning):
            unmet.append(f"prefix: {self.prefix}")
        required = self.with_terms_required().must
        unmet += [f"must: {phrase}" for phrase in required if not occurs(phrase, text)]
        unmet += [f"never: {phrase}" for phrase in self.never if occurs(phrase, text)]
        return tuple(unmet)

    def prefix_subwords(self, tokenizer: Tokenizer) -> list[int]:
        """The subwords of the prefix, which the limit of a translation does not count."""
        [subwords] = tokenizer.encode_target([one_line(self.prefix)])
        return subwords

    @property
    def closes_word(self) -> bool:
        return self.prefix[-1:].isspace() and not self.prefix.isspace()


@dataclass(frozen=True)
class Request:
    """A text to translate and the constraints of its translation."""

    text: str
    constraints: Constraints | None = None

    @classmethod
    def from_line(cls, line: "str | Request") -> "Request":
        """A line, with or without its end, as a request without constraints."""
        return cls(without_end(line)) if isinstance(line, str) else line

    @classmethod
    def parse(cls, line: str, where: str) -> "Request":
        """Read ``{"text": "…", "prefix": "…", "must": ["…"], "never": ["…"], "terms": {…}}``.

        All keys but ``"text"`` are optional; ``"to"``, ``"tag"`` and ``"from"`` become its tags
        (``SourceTags``). A line end in the text becomes a space. The message of an InputError
        begins with ``where``.
        """
        try:
            values = json.loads(line)
            # An escape can spell half of a character, which no text has.
            json.dumps(values, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            values = None
        with errors_name(where):
            if not isinstance(values, dict) or "text" not in values:
                raise InputError('not JSON with a text; write {"text": "…"}, one object a line')
            source = typed_value(values.pop("from", None), str | None, "request.from")
            terms = typed_value(values.pop("terms", {}), Mapping[str, str], "request.terms")
            read = typed(_Line, values, "request")
            constraints = Constraints(read.prefix, read.must, read.never, tuple(terms.items()))
        # No text that a model was trained on has one.
        text = read.text.replace("\r\n", " ").replace("\n", " ")
        return cls(with_tags(text, SourceTags(read.to, read.tag, source)), constraints or None)


@dataclass(frozen=True, kw_only=True)
class _Line(Constraints):
    text: str
    to: str | None = None
    tag: str | None = None


def _contradictions(constraints: Constraints) -> Iterator[str]:
    for name in ("must", "never"):
        if not all(map(one_line, getattr(constraints, name))):
            yield f"a phrase of {name} is empty; drop it"
    if not all(one_line(phrase) for term in constraints.terms for phrase in term):
        yield "a phrase of terms is empty; drop it"
    required = [("must", phrase) for phrase in constraints.must]
    required += [("terms", phrase) for _, phrase in constraints.terms]
    for name, phrase in [*required, ("prefix", constraints.prefix)]:
        for never in constraints.never:
            if occurs(never, phrase):
                yield f"{name} {phrase!r} contains {never!r}, which never forbids; drop one of them"
