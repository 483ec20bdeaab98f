"""OpenAI's Python client against a server whose model reads sound."""

import io
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import requests
import soundfile

from tests.helpers.decoding.file_translators import RATE, file_translator, write_sound
from tests.helpers.interchange.architecture_folders import whisper_folder
from tests.helpers.serving.served import ask, serving
from transformer.__main__ import main
from transformer.common.language_names import language_name
from transformer.data.tokenization.tags import SourceTags, TaggedText
from transformer.decoding.translator import Translator
from transformer.serving.access import Client
from transformer.serving.batch_translation import Options, Sentence, SentenceTranslation

ANNA = Client("anna", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b")


@pytest.fixture(scope="module")
def model() -> Translator:
    return file_translator(usual=100)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sound(tmp_path_factory.mktemp("sounds") / "a talk.wav", 10.0)


@pytest.fixture(scope="module")
def url(model: Translator) -> Iterator[str]:
    with serving(translator=model, pairs=[("sound", "en"), ("sound", "de")]) as address:
        yield address


def client(url: str, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def test_all_formats(url: str, sound: Path, model: Translator) -> None:
    [offline] = model.translate([str(sound)])
    audio = client(url).audio
    asked: dict[str, Any] = {"model": "whisper-1", "language": "en", "prompt": "Numbers."}
    with sound.open("rb") as file:
        assert audio.transcriptions.create(file=file, **asked).text == offline.text
    data = sound.read_bytes()
    verbose = audio.transcriptions.create(
        file=("b.wav", data),
        response_format="verbose_json",
        timestamp_granularities=["segment"],
        temperature=0,
        **asked,
    )
    assert verbose.text == offline.text
    assert (verbose.language, verbose.duration) == ("english", 10.0)
    assert offline.segments is not None and verbose.segments is not None
    found = [(one.start, one.end, one.text) for one in verbose.segments]
    assert found == [(round(a, 3), round(b, 3), text) for a, b, text in offline.segments]
    assert [one.id for one in verbose.segments] == [0, 1, 2]
    assert all(one.avg_logprob < 0 for one in verbose.segments)
    # Only Whisper's models have a symbol of silence.
    assert [one.no_speech_prob for one in verbose.segments] == [None] * 3
    plain = audio.translations.create(file=data, model="sound-en", response_format="text")
    assert plain == offline.text + "\n"
    srt = audio.transcriptions.create(file=data, response_format="srt", **asked)
    first = offline.segments[0]
    assert srt.startswith(f"1\n00:00:00,000 --> 00:00:0{first.end:.3f}".replace(".", ","))
    assert srt.count(" --> ") == 3
    vtt = audio.transcriptions.create(file=data, response_format="vtt", **asked)
    assert vtt.startswith(f"WEBVTT\n\n00:00:00.000 --> 00:00:0{first.end:.3f}\n{first.text}\n\n")


def test_a_script_without_blanks_gets_none(model: Translator, sound: Path) -> None:
    def translate(_: Options, sounds: Sequence[Sentence]) -> list[SentenceTranslation]:
        return [SentenceTranslation(one.text, "你好。") for one in sounds]

    with serving(translator=model, pairs=[("sound", "zh")], translate=translate) as address:
        audio = client(address).audio
        heard = audio.transcriptions.create(file=sound.read_bytes(), model="whisper-1")
    assert heard.text == "你好。" * 3


def test_directions(url: str, sound: Path) -> None:
    audio = client(url).audio
    of = {"file": sound.read_bytes(), "response_format": "verbose_json"}
    german = audio.transcriptions.create(model="whisper-1", language="de", **of)
    named = audio.transcriptions.create(model="sound-de", **of)
    english = audio.translations.create(model="whisper-1", **of)
    assert (german.language, named.language, english.language) == ("german", "german", "english")


def test_models(url: str) -> None:
    models = client(url).models
    listed = list(models.list())
    assert [one.id for one in listed] == ["sound-en", "sound-de"]
    german = models.retrieve("sound-de")
    assert german == listed[1]
    assert (german.object, abs(german.created - time.time()) < 600) == ("model", True)
    with pytest.raises(openai.NotFoundError, match="GET /v1/models lists them"):
        models.retrieve("whisper-1")


def test_a_temperature_samples(url: str, sound: Path) -> None:
    audio = client(url).audio
    of: dict[str, Any] = {"file": sound.read_bytes(), "model": "whisper-1"}
    best = audio.transcriptions.create(**of).text
    sampled = audio.transcriptions.create(temperature=1, **of).text
    assert sampled != best
    assert sampled == audio.transcriptions.create(temperature=1, **of).text


@pytest.mark.parametrize(
    ("changes", "param", "message"),
    [
        ({"language": "fr"}, "language", "'fr' is not written by a model here; one of en, de is"),
        ({"temperature": 2}, "temperature", "temperature must be a number from 0 to 1"),
        ({"response_format": "xml"}, "response_format", "'xml' is not one of json"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities", "only segments"),
        ({"stream": True}, "stream", "leave out stream"),
        ({"file": ("c.wav", b"RIFF")}, "file", "c.wav: not a sound that can be read"),
        ({"file": ("c.wav", b"")}, "file", "c.wav: the file is empty"),
    ],
)
def test_wrong_requests(
    url: str, sound: Path, changes: dict[str, Any], param: str, message: str
) -> None:
    asked = {"file": sound.read_bytes(), "model": "whisper-1"} | changes
    with pytest.raises(openai.BadRequestError, match=message) as refused:
        client(url).audio.transcriptions.create(**asked)
    body = refused.value.body
    assert isinstance(body, dict)
    assert (body["type"], body["param"], body["code"]) == ("invalid_request_error", param, None)
    assert "/tmp" not in body["message"]


def test_whisper_detects_the_language(tmp_path: Path) -> None:
    call = ["import", f"checkpoint={whisper_folder(tmp_path / 'there')}", "languages=de-de"]
    assert main([*call, f"output={tmp_path / 'run'}"]) == 0
    model = Translator.load(tmp_path / "run")
    sound = write_sound(tmp_path / "a.wav", 2.5)
    wanted = [SourceTags(), SourceTags("ja", source="ja"), SourceTags("en")]
    detected, japanese, english = model.translate([TaggedText(str(sound), w) for w in wanted])
    texts = [one.text for one in (detected, japanese, english)]
    assert len(set(texts)) == 3
    of: dict[str, Any] = {"file": sound.read_bytes(), "model": "a"}
    of["response_format"] = "verbose_json"
    with serving(translator=model, pairs=[("de", "de")]) as url:
        audio = client(url).audio
        answers = [
            audio.transcriptions.create(**of),
            audio.transcriptions.create(language="ja", **of),
            audio.translations.create(**of),
        ]
        assert audio.transcriptions.create(temperature=1, **of).language == answers[0].language
        with pytest.raises(openai.BadRequestError, match="one of de, en, ja, haw is"):
            audio.transcriptions.create(language="fr", **of)
    for answer, offline in zip(answers, (detected, japanese, english), strict=True):
        assert offline.segments is not None and len(offline.segments) > 1
        assert [one.text for one in answer.segments] == [one.text for one in offline.segments]
        silences = [one.no_speech_prob for one in answer.segments]
        assert silences == pytest.approx(list(offline.no_speech), rel=1e-4)
    languages = [language_name(str(detected.language)).lower(), "japanese", "english"]
    assert [answer.language for answer in answers] == languages


def test_missing_parameters(url: str, sound: Path) -> None:
    route = f"{url}/v1/audio/transcriptions"
    for values, param in (({"data": {"model": "a"}}, "file"), ({"files": {"file": b"a"}}, "model")):
        answer = requests.post(route, timeout=30, **values)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_text_is_refused(url: str, sound: Path) -> None:
    """A text could name any file of the server."""
    asked = {"q": str(sound), "source": "sound", "target": "en"}
    for more in ({}, {"format": "html"}, {"alignment": True}, {"source": "en"}, {"target": "fr"}):
        status, answer = ask(f"{url}/translate", asked | more)
        assert status == 400
        assert answer["error"].endswith("send a file to /v1/audio/transcriptions")
    status, answer = ask(f"{url}/v2/translate", {"text": [str(sound)], "target_lang": "FR"})
    assert status == 400 and "reads sound, not text" in answer["message"]


def test_keys_and_limits(model: Translator, sound: Path) -> None:
    data = sound.read_bytes()
    pairs = [("sound", "en")]
    with serving(
        translator=model, pairs=pairs, clients=[ANNA], sound_seconds=5.0, file_bytes=len(data)
    ) as url:
        with pytest.raises(openai.AuthenticationError) as refused:
            client(url).audio.transcriptions.create(file=data, model="a")
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            client(url).models.list()
        assert [one.id for one in client(url, "secret").models.list()] == ["sound-en"]
        with pytest.raises(openai.BadRequestError, match="10 s of sound exceed 5"):
            client(url, "secret").audio.transcriptions.create(file=data, model="a")
    with serving(translator=model, pairs=pairs, file_bytes=1000, body_bytes=1000) as url:
        with pytest.raises(openai.APIStatusError, match="exceeds 2000 bytes") as large:
            client(url).audio.transcriptions.create(file=data, model="a")
        assert large.value.status_code == 413
    with serving() as url:
        assert list(client(url).models.list()) == []
        with pytest.raises(openai.NotFoundError, match="No model of this server"):
            client(url).audio.transcriptions.create(file=data, model="a")


@pytest.mark.thorough
def test_ten_minutes() -> None:
    buffer = io.BytesIO()
    noise = 0.1 * np.random.default_rng(1).standard_normal(600 * RATE).astype(np.float32)
    soundfile.write(buffer, noise, RATE, format="WAV", subtype="PCM_16")
    pairs = [("sound", "en")]
    model = file_translator(usual=200)
    with serving(translator=model, pairs=pairs, file_bytes=25_000_000, seconds=300.0) as url:
        found = client(url).audio.transcriptions.create(
            file=("noise.wav", buffer.getvalue()), model="a", response_format="verbose_json"
        )
    assert found.duration == pytest.approx(600.0, abs=0.1)
    assert found.segments is not None
    assert len(found.segments) >= 75
    assert found.segments[-1].end == found.duration
