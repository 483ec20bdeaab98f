"""The English names of languages, by their codes."""

from functools import cache
from importlib.resources import files


@cache
def _names() -> dict[str, str]:
    table = files("transformer.common").joinpath("language_names.tsv").read_text("utf-8")
    return dict(line.split("\t") for line in table.splitlines())


def language_name(code: str) -> str:
    """The English name of a language; the code if it is unknown."""
    base, _, variant = code.partition("-")
    name = _names().get(code) or _names().get(base)
    if name is None:
        return code
    return name if not variant or code in _names() else f"{name} ({variant.upper()})"
