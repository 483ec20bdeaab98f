"""An imported Whisper hears, computes and writes what that of transformers does."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import soundfile
import torch

from tests.helpers.interchange.architecture_folders import whisper_folder
from tests.helpers.lazy import hf
from tests.helpers.sounds import RATE, sound_files
from transformer.__main__ import main
from transformer.data.batching.batch import pad_source
from transformer.data.features.reference import Reference
from transformer.data.features.windows import sound_windows
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.decoding.translator import Translator
from transformer.interchange.architectures.subwords import ImportedIds
from transformer.interchange.architectures.whisper import import_tokenizer
from transformer.interchange.import_model import read_weights
from transformer.settings.tokenizer import BOS, EOS

LIMIT = 12
CASES: dict[str, dict[str, Any]] = {
    "whisper": {},
    "english": {"english": True},
}
COUNTS = [
    ("whisper", 20),
    *(pytest.param(name, 100, marks=pytest.mark.thorough) for name in CASES),
]


class Case(NamedTuple):
    """A model of transformers in ``folder / "there"``, and its import in ``folder / "run"``."""

    folder: Path
    model: Any
    translator: Translator
    ids: ImportedIds


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    @cache
    def case(name: str) -> Case:
        folder = tmp_path_factory.mktemp("case")
        there = whisper_folder(folder / "there", **CASES[name])
        pairs = [f"{file}\tA dog.\n" for file in sound_files(folder / "validation", 3, 2.5)]
        (folder / "v.tsv").write_text("".join(pairs))
        call = ["import", f"checkpoint={there}", f"output={folder / 'run'}"]
        call.append(f"validation={folder / 'v.tsv'}")
        if name != "english":
            call.append("languages=de-de")
        assert main(call) == 0
        model = hf.WhisperForConditionalGeneration.from_pretrained(there).eval()
        ids = import_tokenizer(there, model.config.vocab_size).target
        return Case(folder, model, Translator.load(folder / "run"), ids)

    return case


def heard(case: Case, count: int) -> tuple[list[str], Any]:
    """Files of sounds, and their features in transformers."""
    files = sound_files(case.folder / "sounds", count)
    waves = [soundfile.read(file, dtype="float32")[0] for file in files]
    extractor = hf.WhisperFeatureExtractor.from_pretrained(case.folder / "there")
    return files, extractor(waves, sampling_rate=RATE, return_tensors="pt").input_features


@pytest.mark.parametrize(("name", "count"), COUNTS)
def test_features_states_and_logits_are_those_of_transformers(
    name: str, count: int, imported: Callable[[str], Case]
) -> None:
    case = imported(name)
    files, features = heard(case, count)
    rows = case.translator.tokenizer.encode_source(files)
    source = pad_source(rows)
    mels = features.size(1)
    # batch length (frame mel) -> batch mel (length frame)
    ours = source.unflatten(2, (-1, mels)).flatten(1, 2).transpose(1, 2)
    torch.testing.assert_close(ours, features, rtol=0, atol=1e-4)

    prefix = torch.randint(4, 300, (count, 7), generator=torch.Generator().manual_seed(0))
    prefix[:, 0] = BOS
    model = case.translator.model
    with torch.no_grad():
        hidden = model.encode(source).hidden
        states = case.model.model.encoder(features).last_hidden_state
        logits = model.logits(model(source, prefix))
        there = torch.tensor(case.ids.rows)[prefix]
        theirs = case.model(input_features=features, decoder_input_ids=there).logits
    torch.testing.assert_close(hidden, states, rtol=1e-5, atol=1e-4)
    kept = [one for one in range(len(case.ids.rows)) if one not in case.ids.never]
    theirs = theirs[..., torch.tensor(case.ids.rows)[kept]]
    torch.testing.assert_close(logits[..., kept], theirs, rtol=1e-5, atol=1e-4)


class EndAtLimit:
    """Ends all texts at our limit of the length, with the probability that the model gives."""

    def __init__(self, length: int, end: int) -> None:
        self.length, self.end = length, end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.size(1) < self.length:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, self.end] = scores[:, self.end]
        return only


@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize(("name", "count"), COUNTS)
def test_texts_are_those_of_transformers(
    name: str, count: int, times: bool, imported: Callable[[str], Case]
) -> None:
    case = imported(name)
    files, features = heard(case, count)
    tokenizer = case.translator.tokenizer
    spelled = {
        spelling: number
        for number, spelling in enumerate(tokenizer.subwords(range(len(case.ids.rows))))
    }
    given: dict[str, Any] = {} if name == "english" else {"language": "de", "task": "translate"}
    sources = files
    if given:
        sources = [TaggedText(file, SourceTags("en", source="de")) for file in files]
    prompt = 1 + len(given) + (not times)
    # Ours has no symbols, and a time only where it is asked for.
    kept = tokenizer.times if times else ()
    never = [number for number in tokenizer.never_written if number not in kept]
    banned = {case.ids.rows[number] for number in never} - {case.ids.rows[EOS]}
    banned.add(case.ids.rows[BOS])
    for beam in (1, 5):
        case.model.generation_config.suppress_tokens = sorted(banned)
        with torch.no_grad():
            found = case.model.generate(
                features,
                **given,
                return_timestamps=times,
                num_beams=beam,
                max_new_tokens=LIMIT + 2,
                early_stopping="never" if beam > 1 else False,
                logits_processor=[EndAtLimit(prompt + LIMIT, case.ids.rows[EOS])],
                force_unique_generate_call=True,
            ).tolist()
        expected = [row[: row.index(case.ids.rows[EOS], 1)] for row in found]
        assert len(set(map(tuple, expected))) >= count // 4
        search = replace(
            case.translator.search,
            algorithm="beam" if beam > 1 else "greedy",
            beam_size=beam,
            max_length_ratio=0.0,
            max_length_offset=LIMIT,
        )
        translator = replace(case.translator, search=search, timestamps=times)
        ours = [
            [case.ids.rows[number] for number in (BOS, *map(spelled.get, translation.tokens))]
            for translation in translator.translate(sources)
        ]
        assert ours == expected


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_probability_of_silence_is_that_of_transformers(
    name: str, times: bool, beam: int, imported: Callable[[str], Case]
) -> None:
    case = imported(name)
    files, features = heard(case, 6)
    theirs = deepcopy(case.model)
    ours = deepcopy(case.translator.model)
    # Beside the random rows of the other symbols, that of silence would have no probability.
    tokenizer = case.translator.tokenizer
    assert tokenizer.no_speech is not None
    silence = case.ids.rows[tokenizer.no_speech]
    start = torch.full((6, 1), theirs.generation_config.decoder_start_token_id)
    with torch.no_grad():
        logits = theirs(features, decoder_input_ids=start).logits[:, 0]
        states = theirs.model(features, decoder_input_ids=start).last_hidden_state[:, 0]
        row = states.mean(0) * logits.logsumexp(-1).mean() / states.mean(0).square().sum()
        theirs.get_output_embeddings().weight[silence] = row
        ours.projection.weight[tokenizer.no_speech] = row
        logits = theirs(features, decoder_input_ids=start).logits[:, 0]
    expected = logits.softmax(-1)[:, silence]
    assert 0.01 < expected.min() < expected.max() < 0.99
    search = replace(
        case.translator.search,
        algorithm="beam" if beam > 1 else "greedy",
        beam_size=beam,
        max_length_offset=3,
    )
    translator = replace(case.translator, ensemble=ours, search=search, timestamps=times)
    given = SourceTags("de", source="de") if name == "whisper" else SourceTags()
    found = translator.translate([TaggedText(file, given) for file in files])
    probabilities = torch.tensor([translation.no_speech for translation in found])[:, 0]
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.thorough)])
def test_languages_are_those_of_transformers(count: int, imported: Callable[[str], Case]) -> None:
    case = imported("whisper")
    files, features = heard(case, count)
    ours = deepcopy(case.translator.model)
    theirs = deepcopy(case.model)
    languages = list(case.translator.tokenizer.languages)
    ids = [case.ids.rows[number] for number in languages]
    # Random symbols do not tell sounds apart: these are the directions in which states differ.
    start = torch.full((count, 1), theirs.generation_config.decoder_start_token_id)
    with torch.no_grad():
        states = theirs.model(features, decoder_input_ids=start).last_hidden_state[:, 0]
        mean = states.mean(0)
        directions = torch.linalg.svd(states - mean, full_matrices=False).Vh[:2]
        directions -= torch.outer(directions @ mean, mean) / mean.dot(mean)
        rows = 10 * torch.cat([directions, -directions])
        theirs.get_output_embeddings().weight[ids] = rows
        ours.projection.weight[languages] = rows
    expected = theirs.detect_language(features).tolist()
    assert len(set(expected)) > 2
    search = replace(case.translator.search, max_length_offset=3)
    translator = replace(case.translator, ensemble=ours, search=search)
    found = translator.translate(files)
    known = dict(zip(translator.tokenizer.tags.targets, ids, strict=True))
    assert [known[str(translation.language)] for translation in found] == expected

    def has_no_room(layer: object, inputs: tuple[torch.Tensor]) -> None:
        if len(inputs[0]) > 1:
            raise RuntimeError("out of memory")

    small = ours.encoder.layers[0].register_forward_pre_hook(has_no_room)
    alone = translator.translate(files)
    small.remove()
    assert [translation.language for translation in alone] == [one.language for one in found]
    # As if the language was given: without a target, the sound is written down in it.
    for to in (None, "en"):
        given = [
            TaggedText(file, SourceTags(to or one.language, source=one.language))
            for file, one in zip(files, found, strict=True)
        ]
        asked = [TaggedText(file, SourceTags(to)) for file in files]
        assert translator.translate(asked) == translator.translate(given)
    # Of a target other than English, the sound has the same language.
    [german] = translator.translate([TaggedText(files[0], SourceTags("de"))])
    [given_one] = translator.translate([TaggedText(files[0], SourceTags("de", source="de"))])
    assert german == given_one and german.language == "de"
    # A long sound has the language of its first window.
    samples = np.concatenate([soundfile.read(file)[0] for file in files[:6]])
    name = str(case.folder / "long.wav")
    soundfile.write(name, samples, RATE, subtype="FLOAT")
    [long] = translator.translate([name])
    speech = translator.tokenizer.vector_source.config.speech
    first = next(sound_windows(Reference(name), speech))[2]
    extractor = hf.WhisperFeatureExtractor.from_pretrained(case.folder / "there")
    window = extractor(first, sampling_rate=RATE, return_tensors="pt").input_features
    assert long.parts > 1
    assert known[str(long.language)] == theirs.detect_language(window).item()


def test_the_language_of_a_line_may_be_unknown(
    imported: Callable[[str], Case], tmp_path: Path
) -> None:
    case = imported("whisper")
    files = heard(case, 4)[0]
    rows = [{}, {"from": "de"}, {"to": "de"}, {"to": "en", "from": "ja"}]
    lines = [json.dumps({"text": file, **row}) for file, row in zip(files, rows, strict=True)]
    (tmp_path / "in").write_text("\n".join(lines))
    call = ["translate", f"checkpoint={case.folder / 'run'}", f"input={tmp_path / 'in'}"]
    call += ["input_format=json", "format=json", f"output={tmp_path / 'out'}"]
    assert main([*call, "decoding.max_length_offset=3"]) == 0
    found = [json.loads(line)["language"] for line in (tmp_path / "out").read_text().splitlines()]
    assert found[1:] == ["de", "de", "ja"]
    assert found[0] in case.translator.tokenizer.tags.targets


@pytest.mark.parametrize(
    "name", [*list(CASES)[:1], *(pytest.param(n, marks=pytest.mark.thorough) for n in CASES)]
)
def test_an_imported_model_goes_back_bit_for_bit(
    name: str,
    imported: Callable[[str], Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    case = imported(name)
    call = ["export", f"checkpoint={case.folder / 'run'}", "format=huggingface", "output=back"]
    capsys.readouterr()
    assert main([*call, "max_bleu_loss=100", "trust=true"]) == 0
    verified = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert verified["equal"] == 1.0, verified
    before, after = read_weights(case.folder / "there"), read_weights(tmp_path / "back")
    assert before.keys() - {"proj_out.weight"} == after.keys()
    assert all(torch.equal(weight, before[key]) for key, weight in after.items())
    _, features = heard(case, 4)
    back = hf.WhisperForConditionalGeneration.from_pretrained("back").eval()
    tokens = torch.arange(30)[None].expand(4, -1)
    with torch.no_grad():
        logits = [model(features, decoder_input_ids=tokens).logits for model in (back, case.model)]
    assert torch.equal(*logits)
    [program] = re.findall("```python\n(.*?)```", Path("back/README.md").read_text(), re.DOTALL)
    # For files, transformers calls ffmpeg.
    program = program.replace('"sound.wav"', f"soundfile.read({heard(case, 1)[0][0]!r})[0]")
    monkeypatch.chdir("back")
    capsys.readouterr()
    exec(program, {"soundfile": soundfile})
    assert capsys.readouterr().out.strip()
    monkeypatch.chdir("..")
    processor = hf.WhisperProcessor.from_pretrained("back")
    tokenizer = hf.WhisperTokenizer.from_pretrained(case.folder / "there")
    texts = [" The dog sleeps.", "dog<|0.02|>", "<|de|> Hündin"]
    assert processor.tokenizer(texts).input_ids == tokenizer(texts).input_ids
    languages = [] if name == "english" else ["languages=de-de"]
    assert main(["import", "checkpoint=back", "output=second", *languages]) == 0
    second = Translator.load("second")
    assert second.tokenizer.fingerprint == case.translator.tokenizer.fingerprint
    assert second.model.config == case.translator.model.config


def test_an_import_without_text_goes_back_and_says_that_it_is_not_compared(
    imported: Callable[[str], Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    there = imported("whisper").folder / "there"
    assert main(["import", f"checkpoint={there}", "output=run", "languages=de-en"]) == 0
    capsys.readouterr()
    assert main(["export", "checkpoint=run", "format=huggingface"]) == 0
    assert json.loads(capsys.readouterr().err.splitlines()[-1]) == {"sentences": 0}
    assert "run has no validation text" in caplog.text
    before, after = read_weights(there), read_weights(tmp_path / "run" / "export" / "huggingface")
    assert after
    assert all(torch.equal(weight, before[key]) for key, weight in after.items())


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ([], "languages= is missing; set languages=en-en, of sound and text, among en, de, ja,"),
        (["languages=en"], "languages=en must be SOURCE-TARGET, such as de-en"),
        (["languages=de-xx"], "xx is no language of the model; set languages=en-en"),
        (["languages=de-ja"], "set languages=de-de or languages=de-en"),
    ],
)
def test_languages_that_are_missing_or_wrong_are_one_line(
    languages: list[str],
    message: str,
    imported: Callable[[str], Case],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = imported("whisper").folder / "there"
    call = ["import", f"checkpoint={there}", f"output={tmp_path / 'run'}", *languages]
    assert main(call) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
