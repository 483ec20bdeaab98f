"""Names are the field's terms in American spelling: words of our own stay away."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import transformer

WORDS = (
    *("begun", "judge", "meaning", "ones", "others", "piece", "pieces", "place", "places"),
    *("rehearse", "rehearsal", "said", "scope", "share", "shares", "spare", "standing"),
    *("those", "told"),
)
ALLOWED = {
    *("ones", "ones_like"),  # torch
    *("get_piece_size", "piece_to_id", "id_to_piece"),  # SentencePiece
    *("SentencePieceProcessor", "SentencePieceTrainer", "SentencePiece", "piece", "pieces"),
    "decode_pieces",
    *("share_layers", "ShareLayers", "bitext_share"),  # keys of the config
    "place",  # a key of saved states
    *("scope", "Scope"),  # ASGI
    "share_encoder_decoder_embeddings",  # a key of transformers
}
BRITISH = re.compile(
    "(initial|normal|optim|quant|random|regular|token)is[aei]"
    "|behaviour|colour|labelled|modelling|neighbour"
)


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def test_names_are_american_words_of_the_field() -> None:
    found = {
        (file.name, name)
        for file in Path(transformer.__file__).parent.rglob("*.py")
        for name in names(ast.parse(file.read_text("utf-8")))
        for part in re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_")
        if (part in WORDS and name not in ALLOWED) or BRITISH.search(part)
    }
    assert found == set()
