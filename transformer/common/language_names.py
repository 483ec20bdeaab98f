"""The English names of languages, by their codes, and the codes of ISO 639-3."""

from functools import cache
from importlib.resources import files


@cache
def _rows() -> list[list[str]]:
    """Code, name and, separated by blanks, the ISO 639-3 codes of each language, if it has any."""
    table = files("transformer.common").joinpath("language_names.tsv").read_text("utf-8")
    return [line.split("\t") for line in table.splitlines()]


@cache
def _names() -> dict[str, str]:
    return {code: name for code, name, *_ in _rows()}


@cache
def _short_codes() -> dict[str, str]:
    return {long: code for code, _, *codes in _rows() for long in " ".join(codes).split()}


def short_code(code: str) -> str:
    """The code of ISO 639-1 for one of ISO 639-3: ``de`` for ``deu``; another code as it is."""
    return _short_codes().get(code, code)


def language_name(code: str) -> str:
    """The English name of a language; the code if it is unknown."""
    base, _, variant = code.partition("-")
    name = _names().get(code) or _names().get(base)
    if name is None:
        return code
    return name if not variant or code in _names() else f"{name} ({variant.upper()})"
