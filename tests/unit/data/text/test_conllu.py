"""Which words and tags a CoNLL-U file has, and which lines are refused."""

import gzip
from pathlib import Path

import pytest

from transformer.common.errors import InputError
from transformer.data.text.conllu import UPOS, TaggedSentence, read_conllu

# A range of two words written as one, a word that is only understood, comments, CRLF.
TREEBANK = """\
# sent_id = 1
# text = Geht's im Haus?
1-2\tGeht's\t_\t_\t_\t_\t_\t_\t_\t_
1\tGeht\tgehen\tVERB\tVVFIN\tMood=Ind\t0\troot\t_\t_
2\t's\tes\tPRON\t_\t_\t1\tnsubj\t_\t_
2.1\tdenn\tdenn\tADV\t_\t_\t_\t_\t1:advmod\t_
3-4\tim\t_\t_\t_\t_\t_\t_\t_\t_
3\tin\tin\tADP\t_\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\t_\t_\t5\tdet\t_\t_
5\tHaus\tHaus\tNOUN\t_\t_\t1\tobl\t_\tSpaceAfter=No
6\t?\t?\tPUNCT\t_\t_\t1\tpunct\t_\t_

# sent_id = 2
1\t10 000\t10 000\tNUM\t_\t_\t0\troot\t_\t_
"""
TREEBANK_SENTENCES = [
    TaggedSentence(
        ("Geht", "'s", "in", "dem", "Haus", "?"), ("VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT")
    ),
    TaggedSentence(("10 000",), ("NUM",)),
]


def conllu_row(index: str = "1", word: str = "Haus", tag: str = "NOUN", columns: int = 10) -> str:
    return "\t".join([index, word, "_", tag, *["_"] * (columns - 4)]) + "\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
def test_words_and_tags_of_a_treebank(tmp_path: Path, name: str, line_end: str) -> None:
    content = TREEBANK.replace("\n", line_end).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert list(read_conllu(tmp_path / name)) == TREEBANK_SENTENCES
    assert len(set(UPOS)) == 17
    (tmp_path / "none.conllu").write_text(f"{line_end}# a comment alone{line_end * 2}")
    assert list(read_conllu(tmp_path / "none.conllu")) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (conllu_row() + "2 Haus\n", ":2: '2 Haus' is not word 2 of a sentence; write 10 columns"),
        (conllu_row(tag="NN"), ":1: "),
        (conllu_row(word=" "), ":1: "),
        (conllu_row("1-2-3"), ":1: '1-2-3"),
        (conllu_row() + conllu_row("3"), ":2: '3"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(lines)
    with pytest.raises(InputError) as caught:
        list(read_conllu(path))
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)
