"""What is told of heads: plain values and tables of the same numbers."""

import json
from collections.abc import Sequence

import pytest

from tests.helpers.model.models import tiny_transformer
from transformer.evaluation.head_ablation import Scorer, ablate
from transformer.model.head_masks import HeadName, attention_heads
from transformer.reports.heads import HeadReport


def test_a_report_tells_every_head(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []
    model = tiny_transformer(encoder_layers=1, decoder_layers=1)

    def measure(off: Sequence[HeadName]) -> float:
        calls.append(len(off))
        return 30.0 - len(off) - sum(name.head for name in off)

    scorer = Scorer("BLEU", "tok:13a", "7 sentence pairs", measure, "higher", decimals=2)
    report = HeadReport(scorer, ablate(model, measure, "higher", [0.25, 0.5]))
    told = json.loads(json.dumps(report.to_json()))
    assert calls == [0, *[1] * 12, 3, 6]
    assert (told["metric"], told["signature"], told["score"]) == ("BLEU", "tok:13a", 30.0)
    assert told["heads"][0] == {"head": "encoder.0.3", "score": 26.0, "difference": -4.0}
    assert {head["head"] for head in told["heads"]} == set(map(str, attention_heads(model)))
    assert told["pruned"][0]["share"] == 0.25
    assert told["pruned"][0]["heads_off"] == ["cross.0.0", "decoder.0.0", "encoder.0.0"]
    report.print_tables()
    table = capsys.readouterr().err
    assert "BLEU (tok:13a)" in table
    assert "with 12 heads: 30.00" in table
    assert "encoder.0.3  26.00       -4.00\n" in table
    assert "50% (6)" in table
