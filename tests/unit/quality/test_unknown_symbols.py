"""Sources of characters or words: what the vocabulary lacks is told once, bad tabs are errors."""

import pytest

from tests.helpers.data.corpora import tokenizer_config
from tests.helpers.decoding.translators import tiny_tokenizer
from transformer.common.errors import InputError
from transformer.data.tokenization.tags import SourceTags, TaggedText, Tags
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.constraints.request import Request
from transformer.quality.unknown_symbols import checked_symbols

CONFIG = tokenizer_config(algorithm="char", vocab_size=None, features=";")
TOKENIZER = Tokenizer.train(CONFIG, lambda: [("abc\tV;PST", "x")]).with_tags(Tags(targets=("x",)))


def where(index: int) -> str:
    return f"stdin:{index + 1}"


def test_unknown_symbols_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    lines = [TaggedText("abc\tV", SourceTags("x")), "a😀b\tV", Request("abc\tQ"), ""]
    assert [*checked_symbols(lines, TOKENIZER, where)] == lines
    assert caplog.messages == [
        "2 lines have symbols that the vocabulary lacks, first stdin:2: "
        '"😀" U+1F600 in "a😀b⟨U+0009⟩V"'
    ]
    caplog.clear()
    assert [*checked_symbols(["abc\tV;PST\n"], TOKENIZER, where)] == ["abc\tV;PST\n"]
    assert [*checked_symbols(["a😀\tb\tc"], tiny_tokenizer(), where)]
    assert not caplog.messages
    # A second tab is an error.
    with pytest.raises(InputError, match=r"^stdin:2: 2 tabs; write TEXT<TAB>FEATURES, with ';' be"):
        [*checked_symbols(["abc\tV", "abc\tV\tPST"], TOKENIZER, where)]
