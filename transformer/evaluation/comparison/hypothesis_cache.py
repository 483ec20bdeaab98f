"""Cache of translations in a run directory.

The name of a file is a hash of everything that determines the translations: weights, vocabularies,
search, sources, the code of the search and its libraries. A changed checkpoint has another name.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from transformer.common.errors import InputError
from transformer.common.files import PACKAGE, written_whole
from transformer.data.tokenization.tags import parse_tags
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.fingerprint import compute_fingerprint
from transformer.decoding.translation.length_limit import warn_about_length_limit
from transformer.decoding.translation.translator import Translator

FOLDER = "hypotheses"
"""In the run directory."""

_CODE = ("data", "model", "decoding")
_LIBRARIES = ("torch", "sentencepiece", "sacrebleu")
_TEXT = "sha256_of_hypotheses"


def load_hypotheses(
    translator: Translator, sources: Sequence[str], kept: Path, name: str
) -> list[str]:
    """Translate, or read the cached translations; stderr shows which.

    Args:
        sources: Of the text, with their tags.
        kept: The folder of the cache. If it cannot be written to, nothing is cached; nor with a
            utility of the user, whose changes no hash shows.
        name: Of the text; the files begin with it.
    """
    if ":" in translator.search.utility:
        print(f"decoding {len(sources)} sentences of {name}", file=sys.stderr, flush=True)
        return _translated(translator, sources)
    made_from = _made_from(translator, sources)
    digest = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
    file = kept / f"{name}.{digest[:16]}.hyp"
    if (lines := _read(file)) is not None:
        print(f"{file}: decoded before with this very model and search", file=sys.stderr)
        return lines
    print(f"decoding {len(sources)} sentences of {name} for {file}", file=sys.stderr, flush=True)
    lines = _translated(translator, sources)
    try:
        _write(file, lines, made_from)
    except (OSError, InputError) as error:
        reason = getattr(error, "strerror", None) or error
        print(f"note: {file} cannot be kept ({reason})", file=sys.stderr)
    return lines


def _translated(translator: Translator, sources: Sequence[str]) -> list[str]:
    found = in_documents(translator).translate(sources)
    warn_about_length_limit([translator.length_limit.pop_counts()])
    return [one.text for one in found]


def _made_from(translator: Translator, sources: Sequence[str]) -> dict[str, Any]:
    """Everything that determines the translations."""
    tokenizer = translator.tokenizer
    text = hashlib.sha256()
    for source in sources:
        text.update(json.dumps([source, *parse_tags(source)]).encode())
    return {
        "models": [compute_fingerprint(model, tokenizer) for model in translator.members],
        "search": asdict(translator.search),
        "tags": list(tokenizer.source_tags),
        "sources": text.hexdigest(),
        # Rounding, and so ties, may depend on these two.
        "batch_tokens": translator.batch_tokens,
        "device": translator.device.type,
        "code": code_digest(),
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
    }


@cache
def code_digest(package: Path = PACKAGE) -> str:
    """A hash of the code from sources to translations, committed or not."""
    digest = hashlib.sha256()
    files = [file for folder in _CODE for file in (package / folder).rglob("*.py")]
    for file in sorted(files):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(package).as_posix()} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def _read(file: Path) -> list[str] | None:
    """The lines of a file, if they match their hash."""
    try:
        text = file.read_bytes()
        expected = json.loads(file.with_suffix(".json").read_bytes())[_TEXT]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if hashlib.sha256(text).hexdigest() != expected:
        return None
    return text.decode().split("\n")[:-1]


def _write(file: Path, lines: Sequence[str], made_from: dict[str, Any]) -> None:
    """Write both files; one without the other is ignored."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    about = made_from | {_TEXT: hashlib.sha256(text).hexdigest()}
    with written_whole(file) as part:
        part.write_bytes(text)
    with written_whole(file.with_suffix(".json")) as part:
        part.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
