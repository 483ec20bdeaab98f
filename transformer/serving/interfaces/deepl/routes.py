"""The interface of DeepL, version 2: what its own clients send and expect.

Codes of languages are upper case. Styles, formality and the context of a text change nothing in a
model that was not trained with them; a glossary makes phrases occur.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from transformer.common.language_names import language_name
from transformer.decoding.constraints.request import Constraints
from transformer.serving.access import Access, Client, header_key
from transformer.serving.formats.blocks import Rules
from transformer.serving.formats.markup import translate_markup, visible_texts
from transformer.serving.interfaces.deepl.documents import DeepLDocuments
from transformer.serving.interfaces.deepl.glossaries import DeepLGlossaries
from transformer.serving.interfaces.deepl.tags import tag_rules
from transformer.serving.interfaces.files import Files
from transformer.serving.interfaces.http import (
    Answer,
    Refusal,
    charge,
    endpoint,
    read_parameters,
    unless_gone,
)
from transformer.serving.languages.directions import Direction
from transformer.serving.languages.sentences import Splitting
from transformer.serving.service import TranslationService
from transformer.serving.translations import Options

_SPLITTING: dict[str, Splitting] = {"0": "none", "1": "sentences", "nonewlines": "punctuation"}

_UNLIMITED = 10**12
"""``character_limit``: the clients expect a number."""


class DeepL:
    """Answers as DeepL does; ``documents`` are translated in the background."""

    def __init__(self, service: TranslationService, access: Access, files: Files) -> None:
        self.service, self.access = service, access
        self.directions = service.directions
        self._characters: Counter[Client | None] = Counter()
        self._glossaries = DeepLGlossaries(self.directions)
        self.documents = DeepLDocuments(
            service,
            access,
            files,
            direction=self._direction,
            constrain=self._glossaries.constrain,
            characters=self._characters,
        )

    def routes(self) -> Iterator[Route]:
        """All routes of the interface."""
        for path, method, answer in (
            ("/v2/translate", "POST", self.translate),
            ("/v2/languages", "GET", self.languages),
            ("/v2/usage", "GET", self.usage),
            *self._glossaries.answers(),
            *self.documents.answers(),
        ):
            admitted = endpoint(self._admitted(answer), lambda text: {"message": text})
            yield Route(path, admitted, methods=[method])

    def _admitted(self, answer: Answer) -> Answer:
        """An answer for those who have a key, within their requests a minute."""

        async def admitted(request: Request) -> Response:
            client = None
            if self.access.clients is not None:
                client = self.access.client(header_key(request.headers, "DeepL-Auth-Key") or "")
                if client is None:
                    raise Refusal(403, "Wrong or missing key in Authorization: DeepL-Auth-Key KEY")
            request.state.client = client
            charge(request, self.access, client, 1)
            return await answer(request)

        return admitted

    async def translate(self, request: Request) -> Response:
        """Translate texts."""
        asked = await read_parameters(request)
        texts = _strings(asked.get("text"))
        charge(request, self.access, request.state.client, len(texts) - 1)
        self._check(asked, texts)
        rules = tag_rules(asked)
        seen = (
            await visible_texts(texts, rules) if rules and not asked.get("source_lang") else texts
        )
        direction, detected = self._direction(asked, seen)
        constrain = self._glossaries.constrain(request, asked.get("glossary_id"), direction)
        given = asked.get("split_sentences")
        splitting = _SPLITTING.get("1" if given is None else str(given))
        if splitting is None:
            raise Refusal(400, "split_sentences must be 0, 1 or nonewlines")
        work = self._translate(texts, rules, direction, splitting, constrain)
        found = await unless_gone(request, work)
        self._characters[request.state.client] += sum(map(len, texts))
        source = {"detected_source_language": detected}
        translations = [
            {**source, "text": translation, "billed_characters": len(text)}
            for text, translation in zip(texts, found, strict=True)
        ]
        return JSONResponse({"translations": translations})

    async def _translate(
        self,
        texts: Sequence[str],
        rules: Rules | None,
        direction: Direction,
        splitting: Splitting,
        constrain: Callable[[str], Constraints | None] | None,
    ) -> list[str]:
        """The translations of texts, or of HTML or XML, in which a line end is a blank."""
        options = Options(direction)
        if rules is not None:
            return await translate_markup(
                *(self.service, texts, options, rules),
                splitting="none" if splitting == "none" else "punctuation",
                constrain=constrain,
            )
        found = await self.service.translate(
            texts, options, splitting=splitting, constrain=constrain
        )
        return [one.text for one in found]

    def _check(self, asked: Mapping[str, Any], texts: Sequence[str]) -> None:
        limits = self.service.limits
        if limits.texts is not None and len(texts) > limits.texts:
            raise Refusal(413, f"{len(texts)} texts are more than {limits.texts}")
        longest = max(map(len, texts), default=0)
        if limits.characters is not None and longest > limits.characters:
            raise Refusal(413, f"a text of {longest} characters is longer than {limits.characters}")
        if asked.get("formality") in ("more", "less"):
            raise Refusal(400, "formality is not supported for this language")

    def _direction(self, asked: Mapping[str, Any], texts: Sequence[str]) -> tuple[Direction, str]:
        """The direction that is asked for, and its source as the interface writes it."""
        target = self.directions.code(str(asked.get("target_lang", "")), self.directions.targets)
        if target is None:
            raise Refusal(400, "Value for 'target_lang' not supported.")
        given = asked.get("source_lang") or self.service.detect_source(texts, target).language
        source = self.directions.code(str(given), self.directions.sources)
        if source is None:
            raise Refusal(400, "Value for 'source_lang' not supported.")
        direction = self.directions.find(source, target)
        if direction is None:
            raise Refusal(400, f"Translation from {source} to {target} is not supported.")
        return direction, source.upper()

    async def languages(self, request: Request) -> Response:
        """The source or the target languages."""
        kind = (await read_parameters(request)).get("type", "source")
        if kind not in ("source", "target"):
            raise Refusal(400, "type must be source or target")
        codes = self.directions.sources if kind == "source" else self.directions.targets
        more = {} if kind == "source" else {"supports_formality": False}
        return JSONResponse(
            [{"language": code.upper(), "name": language_name(code), **more} for code in codes]
        )

    async def usage(self, request: Request) -> Response:
        """Characters of this client since the server started."""
        count = self._characters[request.state.client]
        return JSONResponse({"character_count": count, "character_limit": _UNLIMITED})


def _strings(given: Any) -> list[str]:
    """The parameter ``text``: a string or several."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise Refusal(400, "Parameter 'text' not specified.")
    return texts
