"""Imported M2M-100 and NLLB models compute and translate what transformers does, and go back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.interchange.imported_twins import assert_same_logits, limited_search
from tests.helpers.interchange.m2m_folders import LANGUAGES, m2m_folder, theirs
from tests.helpers.interchange.marian_folders import change_json, sentences
from tests.helpers.lazy import Lazy
from tests.helpers.model.models import tiny_config
from transformer.__main__ import main
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.decoding.forced_decoding import score_pairs
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.m2m import import_tokenizer
from transformer.interchange.import_model import read_weights
from transformer.model.build import build_transformer
from transformer.model.positions.absolute import sinusoids
from transformer.serving.languages import trained_directions
from transformer.settings.run import RunConfig

hf_m2m_100 = Lazy("transformers.models.m2m_100.modeling_m2m_100")

LIMIT = 60
CASES: dict[str, dict[str, Any]] = {
    "m2m": {"kind": "m2m"},
    "nllb": {"kind": "nllb", "ends": 20.0},
    "unigram": {"kind": "m2m", "algorithm": "unigram", "missing": 7},
    "half": {"kind": "nllb", "half": True, "d_model": 48, "ends": 20.0},
}


def write_validation() -> None:
    for language in ("en", "de"):
        lines = sentences(language, "validation", 12)
        Path(f"v.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    ["m2m", *(pytest.param(name, marks=pytest.mark.thorough) for name in CASES if name != "m2m")],
)
def test_an_imported_model_is_that_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, kind = m2m_folder(tmp_path / "there", **CASES[name]), CASES[name]["kind"]
    write_validation()
    assert main(["import", "checkpoint=there", "output=run", "validation=[v.en,v.de]"]) == 0
    model, tokenizer = theirs(folder, kind)
    source, target = {"m2m": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}[kind]
    tokenizer.src_lang = source
    texts = sentences("en", "test", 40)
    given = [TaggedText(text, SourceTags(target, source=source)) for text in texts]
    encoded = tokenizer(texts, return_tensors="pt", padding=True)

    translator = Translator.load("run")
    ids = import_tokenizer(folder, model.config.vocab_size).source
    rows = [[*row, 3] for row in translator.tokenizer.encode_source(given)]
    lengths = encoded.attention_mask.sum(1).tolist()
    assert [[ids.rows[i] for i in row] for row in rows] == [
        row[:length] for row, length in zip(encoded.input_ids.tolist(), lengths, strict=True)
    ]

    assert_same_logits(translator, model, encoded, rows, ids)

    languages = language_ids(tokenizer, kind)
    # Our search never chooses a symbol or a language; theirs may.
    banned = [0, 1, *(number for code, number in languages.items() if code != target)]
    for beam in (1, 4):
        with torch.no_grad():
            found = model.generate(
                **encoded,
                num_beams=beam,
                max_length=LIMIT + 3,
                early_stopping="never" if beam > 1 else False,
                forced_bos_token_id=languages[target],
                bad_words_ids=[[number] for number in banned],
            )
        expected = tokenizer.batch_decode(found, skip_special_tokens=True)
        whole = [index for index, row in enumerate(found.tolist()) if 2 in row[1 : LIMIT + 2]]
        assert len(whole) >= 30 and len({expected[i] for i in whole}) > 5
        translated = [
            translation.text
            for translation in limited_search(translator, beam, LIMIT).translate(given)
        ]
        assert [translated[i] for i in whole] == [expected[i] for i in whole]

    again = exported(folder, kind)
    again.src_lang = source
    assert again(texts).input_ids == tokenizer(texts).input_ids
    assert language_ids(again, kind) == languages


def language_ids(tokenizer: Any, kind: str) -> dict[str, int]:
    spelled = {code: f"__{code}__" if kind == "m2m" else code for code in LANGUAGES[kind]}
    return {code: tokenizer.convert_tokens_to_ids(spelled[code]) for code in spelled}


def exported(folder: Path, kind: str) -> Any:
    """The tokenizer of an export, which has the tensors of the folder."""
    assert main(["export", "checkpoint=run", "format=huggingface", "output=back"]) == 0
    before, after = read_weights(folder), read_weights(Path("back"))
    # A file of torch repeats what is tied.
    tied = {name for name in before if "embed_tokens" in name or name == "lm_head.weight"}
    assert before.keys() - tied == after.keys()
    assert all(torch.equal(before[key].float(), after[key]) for key in after)
    return theirs(Path("back"), kind)[1]


@pytest.mark.thorough
def test_an_imported_model_is_tuned_and_served_with_its_languages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    m2m_folder(tmp_path / "there")
    write_validation()
    assert main(["import", "checkpoint=there", "output=run"]) == 0
    call = ["finetune_from=run", "data=files", "data.source=en", "data.target=de"]
    call += ["data.train=[v.en,v.de]", "data.validation=[v.en,v.de]", "data.test_size=0"]
    call += ["trainer.max_steps=2", "schedule.warmup=1", "hydra.run.dir=tuned", "test=false"]
    assert main(["train", *call]) == 0
    translator = Translator.load("tuned")
    assert translator.tokenizer.tags.both_sides
    told = SourceTags("de", source="en")
    text = TaggedText("The dog sleeps.", told)
    [found] = translator.translate([text])
    assert found.source_tokens[0] == "<2 en>" and found.tokens[0] == "<2 de>"
    [score] = score_pairs(translator.model, translator.tokenizer, [(text, "Der Hund schläft.")])
    assert score.tokens[0] == "<2 de>" and score.token_log_probabilities[0] == 0
    [direction] = trained_directions(translator, RunConfig(), "zh-de")
    assert direction.tags == SourceTags("de", source="zh")
    # The loss counts the tag, which is the first token of a target.
    [(_, subwords)] = translator.tokenizer.encode_pairs([(text, "Der Hund schläft.")])
    assert translator.tokenizer.subwords(subwords[:1]) == ["<2 de>"]


def test_positions_and_start_are_those_of_fairseq() -> None:
    there = hf_m2m_100.M2M100SinusoidalPositionalEmbedding.get_embedding(52, 16, 1)[2:]
    ours = sinusoids(30, 16, start=20, fairseq=True)
    halves = torch.cat((ours[:, 0::2], ours[:, 1::2]), dim=1)
    torch.testing.assert_close(halves, there[20:], rtol=0, atol=1e-5)
    model = build_transformer(tiny_config(positions="fairseq", decoder_start=3)).eval()
    source, target = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7, 2, 8]])
    started = target.clone()
    started[0, 0] = 3
    torch.testing.assert_close(model(source, target), model(source, started))
    cache = model.start(model.encode(source))
    steps = [model.decode(target[:, i : i + 1], cache) for i in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(source, target), rtol=1e-4, atol=1e-5)


def drop(name: str, *keys: str) -> None:
    file = Path("bad") / name
    values = json.loads(file.read_text())
    for key in keys:
        values.pop(key, None)
    file.write_text(json.dumps(values))


def change_model(**values: Any) -> None:
    file = Path("bad/tokenizer.json")
    whole = json.loads(file.read_text())
    file.write_text(json.dumps(whole | {"model": whole["model"] | values}))


FAULTS: dict[str, tuple[str, Callable[[], object], str]] = {
    "no codes": (
        "m2m",
        lambda: drop("tokenizer_config.json", "extra_special_tokens"),
        "lacks language codes",
    ),
    "huge": (
        "m2m",
        lambda: change_json(Path("bad/config.json"), vocab_size=10**12),
        "vocab_size=1000",
    ),
    "no file": (
        "nllb",
        lambda: Path("bad/tokenizer.json").unlink(),
        "tokenizer.json cannot be read",
    ),
    "path": (
        "nllb",
        lambda: change_json(Path("bad/tokenizer.json"), model="../../secret"),
        "tokenizer.json cannot be read",
    ),
    "merges": ("nllb", lambda: change_model(merges=[["e", "r"]]), "not those of SentencePiece"),
    "legacy": (
        "nllb",
        lambda: change_json(Path("bad/tokenizer_config.json"), legacy_behaviour=True),
        "legacy_behaviour=false",
    ),
    "language": (
        "nllb",
        lambda: change_json(Path("bad/tokenizer_config.json"), src_lang="xx"),
        "xx is no language of the model",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("good")
    return {kind: m2m_folder(folder / kind, kind=kind) for kind in LANGUAGES}


@pytest.mark.parametrize("name", FAULTS)
def test_a_damaged_folder_is_refused_in_one_line(
    name: str,
    good: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, damage, message = FAULTS[name]
    shutil.copytree(good[kind], "bad")
    damage()
    assert main(["import", "checkpoint=bad", "output=run"]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad"]
