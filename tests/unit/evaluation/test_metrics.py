"""Our scores are sacreBLEU's, as its own command line prints them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from tests.helpers.decoding.metrics import RAW
from transformer.common.errors import InputError
from transformer.evaluation.metrics import score
from transformer.reports.scores import format_json
from transformer.settings.metrics import MetricsConfig

HYPOTHESES = ["Der Hund schläft heute.", "Zwei Katzen liefen schnell.", "", "Ein Haus, groß."]
REFERENCES = ["Der Hund schläft heute.", "Die zwei Katzen laufen.", "Nein.", "ein großes Haus."]


def sacrebleu_prints(folder: Path, *arguments: str) -> str:
    for name, lines in (("hyp", HYPOTHESES), ("ref", REFERENCES)):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(folder / "ref"), "-i", str(folder / "hyp")]
    done = subprocess.run([*command, *arguments], check=True, capture_output=True)
    return done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (RAW, ()),
        (
            MetricsConfig(tokenize="char", lowercase=True),
            ("--tokenize", "char", "--lowercase", "--chrf-lowercase"),
        ),
    ],
)
def test_json_is_what_sacrebleu_prints(
    config: MetricsConfig, options: Sequence[str], tmp_path: Path
) -> None:
    metrics = ("-m", "bleu", "chrf", "ter", "--format", "json", "--width", "2")
    printed = sacrebleu_prints(tmp_path, *metrics, *options)
    assert format_json(score(HYPOTHESES, REFERENCES, config=config)) + "\n" == printed


def test_metrics_keep_their_order_and_values_their_digits() -> None:
    scores = score(REFERENCES, REFERENCES, ("ter", "bleu"), config=RAW)
    assert [(s.name, s.value) for s in scores] == [("TER", 0.0), ("BLEU", pytest.approx(100.0))]
    [bleu] = score(HYPOTHESES, REFERENCES, ("bleu",), config=RAW)
    assert bleu.value != bleu.to_json()["score"]
    assert round(bleu.value, 2) == bleu.to_json()["score"]


def test_what_cannot_be_scored_is_the_users_error() -> None:
    with pytest.raises(InputError, match="4 hypotheses and 3 references"):
        score(HYPOTHESES, REFERENCES[:3], config=RAW)
    with pytest.raises(InputError, match="0 hypotheses and 0 references"):
        score([], [], config=RAW)
    with pytest.raises(InputError, match="metric meteor is unknown"):
        score(HYPOTHESES, REFERENCES, ("meteor",), config=RAW)
    with pytest.raises(
        InputError, match=r"tokenize=14a cannot be used \(it is unknown\); choose one of"
    ):
        MetricsConfig(tokenize="14a", lowercase=False)


def test_tokenizer_without_its_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise RuntimeError("Please install\nthe following: mecab")

    monkeypatch.setattr(BLEU, "TOKENIZERS", [*BLEU.TOKENIZERS, "gone"])
    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", lambda name: lacking)
    with pytest.raises(InputError, match=r"tokenize=gone cannot be used \(Please install the fol"):
        MetricsConfig(tokenize="gone", lowercase=False).bleu()


def test_text_that_is_tokenized_is_taken_as_it_is() -> None:
    hypotheses, references = (
        ["ein mann , der &quot; ja &quot; sagt ."],
        ["ein mann , der ja sagt ."],
    )
    (bleu,) = score(
        hypotheses, references, ("bleu",), config=MetricsConfig(tokenize="none", lowercase=False)
    )
    assert bleu.to_json()["verbose_score"].startswith("77.8/")  # 7 of 9 words between spaces
    assert "|tok:none|" in bleu.signature
