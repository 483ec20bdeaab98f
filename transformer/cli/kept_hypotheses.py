"""Translations that are kept beside a run, and used again as long as they would come out the same.

What they depend on is hashed into the name of their file: weights, vocabularies, search, sources
and version. A checkpoint that has changed since has another name, and what was kept of the old one
is passed over. It does not know what the translations are for.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import transformer
from transformer.data.cache import written_whole
from transformer.data.tags import tags_of
from transformer.decoding.documents import in_documents
from transformer.decoding.translator import Translator
from transformer.errors import InputError
from transformer.export.fingerprint import fingerprint_of

FOLDER = "hypotheses"
"""In the run directory."""

_TEXT = "sha256_of_hypotheses"


def hypotheses_of(
    translator: Translator, sources: Sequence[str], kept: Path, name: str
) -> list[str]:
    """Translate, or read what was translated before; tell on stderr which.

    Args:
        translator: With its search.
        sources: Of the text, with their tags.
        kept: The folder to keep translations in; one that cannot be written to keeps nothing.
        name: Of the text; their files begin with it.
    """
    made_from = _made_from(translator, sources)
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
    file = kept / f"{name}.{digest[:16]}.hyp"
    if (lines := _read(file)) is not None:
        print(f"{file}: translated before with this very model and search", file=sys.stderr)
        return lines
    print(f"translating {len(sources)} sentences of {name} for {file}", file=sys.stderr, flush=True)
    lines = [one.text for one in in_documents(translator).translate(sources)]
    try:
        _write(file, lines, made_from)
    except (OSError, InputError) as error:
        reason = getattr(error, "strerror", None) or error
        print(f"note: {file} cannot be kept ({reason})", file=sys.stderr)
    return lines


def _made_from(translator: Translator, sources: Sequence[str]) -> dict[str, Any]:
    """All that decides what the translations are."""
    tokenizer = translator.tokenizer
    text = hashlib.sha256()
    for source in sources:
        text.update(json.dumps([source, *tags_of(source)]).encode())
    return {
        "models": [fingerprint_of(model, tokenizer) for model in translator.members],
        "search": asdict(translator.search),
        "tags": list(tokenizer.source_tags),
        "sources": text.hexdigest(),
        "version": transformer.__version__,
    }


def _read(file: Path) -> list[str] | None:
    """The lines of a file, if they are those that were written."""
    try:
        text = file.read_bytes()
        wanted = json.loads(file.with_suffix(".json").read_bytes())[_TEXT]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if hashlib.sha256(text).hexdigest() != wanted:
        return None
    return text.decode().split("\n")[:-1]


def _write(file: Path, lines: Sequence[str], made_from: dict[str, Any]) -> None:
    """Leave both files; where only one was written, nobody believes it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    about = made_from | {_TEXT: hashlib.sha256(text).hexdigest()}
    with written_whole(file) as part:
        part.write_bytes(text)
    with written_whole(file.with_suffix(".json")) as part:
        part.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
