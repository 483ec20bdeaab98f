"""Models of the reverse direction: what clean rejects, and what select and ask choose, by them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.decoding.translators import PAIRS
from tests.helpers.serving.chat_server import ChatServer, chatting
from tests.unit.cli.test_load import RUN, written
from transformer.__main__ import main
from transformer.checkpoint.checkpoint import load_checkpoint
from transformer.cli import progress
from transformer.commands.select import check_direction
from transformer.common.errors import InputError
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.forced_decoding import TargetScore, score_pairs
from transformer.settings.data import CorpusConfig, DataConfig

CANDIDATES = [["der hund .", "ein kind liest .", "ein hund läuft ."], ["katzen", "katze"]]
SOURCES = [PAIRS[0][0], "a cat"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs a (en to de), b (de to en) and both (tags), and text in small.tsv."""
    tagged = {"target_tag": True}
    for name, source, more in (("a", "en", {}), ("b", "de", {}), ("both", "en", tagged)):
        data = {"source": source, "target": "de" if source == "en" else "en", **more}
        written(tmp_path / f"{name}.ckpt", RUN | {"data": data})
    monkeypatch.chdir(tmp_path)
    Path("small.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in [*PAIRS, ("a", "")]))


def scores(pairs: list[tuple[str, str]], run: str = "b") -> list[TargetScore]:
    loaded = load_checkpoint(Path(f"{run}.ckpt"))
    return score_pairs(loaded.model, Tokenizer.from_state(loaded.portable.tokenizer), pairs)


def clean(*arguments: str) -> int:
    files = ["data=files", "data.source=en", "data.target=de", "data.train=small.tsv"]
    return main(["clean", *files, "output=out", *arguments])


def test_clean_rejects_by_two_models(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    assert clean("models=[a.ckpt,b.ckpt]", "keep=0.5") == 0
    said = capsys.readouterr().err
    assert "2 of 5 pairs kept" in said
    assert "scored by models= (faulty pairs aside): 4 of 5\n" in said
    rows = [json.loads(line) for line in Path("out/train.rejected.jsonl").read_text().splitlines()]
    dual = {row["line"]: row["cross_entropy"] for row in rows if row["faults"] != ["empty"]}
    assert len(dual) == 2 and all(row["faults"] == ["cross_entropy"] for row in rows[:-1])
    sides = scores(PAIRS, "a"), scores([(de, en) for en, de in PAIRS])
    nats = [[-one.log_probability / len(one.tokens) for one in side] for side in sides]
    by_hand = [abs(a - b) + (a + b) / 2 for a, b in zip(*nats, strict=True)]
    assert set(dual) == {by_hand.index(score) + 1 for score in sorted(by_hand)[2:]}
    for line, numbers in dual.items():
        given = [numbers[name] for name in ("forward", "reverse", "score")]
        wanted = [nats[0][line - 1], nats[1][line - 1], by_hand[line - 1]]
        assert given == pytest.approx(wanted, abs=1e-3)


def test_models_that_cannot_judge(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["models=[b.ckpt,a.ckpt]"], "b.ckpt translates de to en, and en to de alone is wanted"),
        (["models=[both.ckpt,b.ckpt]"], "both.ckpt translates en to de, and en to de alone"),
        (["models=[a.ckpt]"], "models=[a.ckpt] must be two; give models=[RUN,REVERSE]"),
        (["keep=0.5"], "keep=0.5 is of the pairs that models= rank; give models=[RUN,"),
    ):
        assert clean(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert not Path("out").exists()


def best(last: float = 0.0) -> list[str]:
    """Of each list the most probable candidate by the source; the model adds to the last one."""
    chosen = []
    for source, several in zip(SOURCES, CANDIDATES, strict=True):
        found = [one.log_probability for one in scores([(text, source) for text in several])]
        found[-1] += last
        chosen.append(several[found.index(max(found))])
    return chosen


def test_a_reverse_model_of_several_corpora_has_their_languages() -> None:
    corpora = {"a": CorpusConfig(source="fr_FR", target="en"), "b": CorpusConfig(source="es")}
    data = DataConfig(source="en", target="de", corpora=corpora)
    check_direction("a", data, ("en", "fr"))
    check_direction("a", data, ("de", "eng"))  # a code without a name may be any language
    with pytest.raises(InputError, match="a translates es to de, fr_FR to en, and fr to de is"):
        check_direction("a", data, ("de", "fr"))


@pytest.mark.thorough
def test_select_and_ask_choose_by_a_reverse_model(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[Any] = [{"nbest": [{"text": one} for one in several]} for several in CANDIDATES]
    Path("n.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("in").write_text("".join(f"{source}\n" for source in SOURCES))
    call = ["select", "nbest=n.jsonl", "source=in", "output=o"]
    assert main([*call, "reverse=b.ckpt"]) == 0
    assert Path("o").read_text().splitlines() == best() != [several[0] for several in CANDIDATES]
    for last in (-99.0, 99.0):
        for row in rows:
            row["nbest"][-1]["log_probability"] = last
            # Of two segmentations of one text the more probable counts.
            row["nbest"] += [row["nbest"][-1] | {"log_probability": -199.0}]
        Path("n.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert main([*call, "reverse=b.ckpt"]) == 0
        assert Path("o").read_text().splitlines() == best(last)
    assert best(99.0) == [several[-1] for several in CANDIDATES]
    assert best(-99.0) != best(99.0)
    assert main([*call, "reverse=b.ckpt", "reference=in"]) == 2
    message = "give reference=FILE alone, or source=FILE and reverse=RUN"
    assert message in capsys.readouterr().err
    by_text = dict(zip(SOURCES, CANDIDATES, strict=True))
    with chatting(ChatServer(translate=lambda text, n: by_text[text][:n])) as server:
        ask = ["ask", f"server={server.url}", "model_name=m", "input=in", "source=en", "target=de"]
        assert main([*ask, "output=out", "candidates=3", "reverse=a.ckpt"]) == 2
        assert not server.asked
        said = capsys.readouterr().err
        assert "reverse=a.ckpt translates en to de, and de to en is wanted" in said
        assert main([*ask, "output=out", "candidates=3", "reverse=b.ckpt"]) == 0
        assert "asked for different lines: 2 of 2 (answered 2, " in capsys.readouterr().err
    assert Path("out/target.txt").read_text().splitlines() == best()
    assert Path("out/source.txt").read_text() == Path("in").read_text()
