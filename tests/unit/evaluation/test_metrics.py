"""Our scores are sacreBLEU's, as its own command line prints them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.errors import InputError
from transformer.evaluation.metrics import score
from transformer.evaluation.report import format_json

HYPOTHESES = ["Der Hund schläft heute.", "Zwei Katzen liefen schnell.", "", "Ein Haus, groß."]
REFERENCES = ["Der Hund schläft heute.", "Die zwei Katzen laufen.", "Nein.", "ein großes Haus."]


def sacrebleu_prints(folder: Path, *arguments: str) -> str:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(folder / "ref"), "-i", str(folder / "hyp")]
    done = subprocess.run([*command, *arguments], check=True, capture_output=True)
    return done.stdout.decode("utf-8")


def test_json_is_what_sacrebleu_prints(tmp_path: Path) -> None:
    printed = sacrebleu_prints(
        tmp_path, *("-m", "bleu", "chrf", "ter", "--format", "json", "--width", "2")
    )
    assert format_json(score(HYPOTHESES, REFERENCES)) + "\n" == printed


def test_tokenizer_and_case_reach_sacrebleu(tmp_path: Path) -> None:
    printed = sacrebleu_prints(
        tmp_path,
        *("-m", "bleu", "chrf", "--format", "json", "--width", "2"),
        *("--tokenize", "char", "--lowercase", "--chrf-lowercase"),
    )
    ours = score(HYPOTHESES, REFERENCES, ("bleu", "chrf"), tokenize="char", lowercase=True)
    assert [s.to_json() for s in ours] == json.loads(printed)
    assert ours[0].signature.startswith("nrefs:1|case:lc|eff:no|tok:char|smooth:exp|version:")


def test_the_order_of_the_metrics_is_the_callers() -> None:
    scores = score(REFERENCES, REFERENCES, ("ter", "bleu"))
    assert [(s.name, s.value) for s in scores] == [("TER", 0.0), ("BLEU", pytest.approx(100.0))]


def test_the_value_keeps_what_the_json_rounds() -> None:
    [bleu] = score(HYPOTHESES, REFERENCES, ("bleu",))
    assert bleu.value != bleu.to_json()["score"]
    assert round(bleu.value, 2) == bleu.to_json()["score"]


def test_what_cannot_be_scored_is_the_users_error() -> None:
    with pytest.raises(InputError, match="4 hypotheses and 3 references"):
        score(HYPOTHESES, REFERENCES[:3])
    with pytest.raises(InputError, match="no hypothesis"):
        score([], [])
    with pytest.raises(InputError, match="metric meteor is unknown"):
        score(HYPOTHESES, REFERENCES, ("meteor",))
    with pytest.raises(InputError, match="tokenize=14a is unknown to sacreBLEU; choose one of"):
        score(HYPOTHESES, REFERENCES, tokenize="14a")


def test_a_tokenizer_that_is_not_installed_is_the_users_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", None)
    with pytest.raises(InputError, match="tokenize=ja-mecab cannot be used here: "):
        score(HYPOTHESES, REFERENCES, tokenize="ja-mecab")
