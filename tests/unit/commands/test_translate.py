"""What a program does with the functions of ``translate`` and ``serve``."""

import json
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from urllib.request import urlopen

import pytest

from tests.helpers.runs.tuning_runs import write_run
from transformer.commands.serve import Service, serve
from transformer.commands.translate import translate, translate_file
from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.translator import Translator
from transformer.settings.commands import ServeConfig
from transformer.settings.translator import TranslateConfig


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_run(tmp_path_factory.mktemp("run")))


def test_lines_become_translations_in_their_order(run: str) -> None:
    texts = ["a dog", "", "a child reads ."]
    expected = [one.text for one in Translator.load(run).translate(texts)]
    assert [one.text for one in translate(TranslateConfig(run), texts)] == expected
    asked = [json.dumps({"text": text}) for text in texts]
    found = translate(TranslateConfig(run, input_format="json"), asked)
    assert [one.text for one in found] == expected
    must = Request("a dog", Constraints(must=("ein",)))
    [constrained] = translate(TranslateConfig(run), [must])
    assert constrained.unmet is not None
    [listed] = translate(TranslateConfig(run, decoding={"nbest": 2, "beam_size": 2}), texts[:1])
    assert len(listed.nbest) == 2


def test_a_wrong_line_is_named(run: str) -> None:
    found = translate(TranslateConfig(run, input_format="json"), ['{"text": "a"}', "{"])
    assert next(found).text
    with pytest.raises(InputError, match=r"^lines:2: not JSON with a text"):
        next(found)
    with pytest.raises(InputError, match="nothing to read; give lines, or input=FILE"):
        translate(TranslateConfig(run))


def test_a_file_is_translated_to_a_file(run: str, tmp_path: Path) -> None:
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_text("a dog\n\n")
    config = TranslateConfig(run, input=source, output=output)
    translate_file(config)
    lines = [one.to_line() for one in translate(config)]
    assert output.read_text().splitlines() == lines
    assert sorted(tmp_path.iterdir()) == [output, source]
    with pytest.raises(InputError, match=r"output=None must be two files"):
        translate_file(TranslateConfig(run, input=source))


def test_a_program_stops_the_server(run: str) -> None:
    pytest.importorskip("starlette")
    services = SimpleQueue[Service]()
    config = ServeConfig(checkpoint=run, port=0, languages=["en-de"])
    thread = Thread(target=serve, args=(config,), kwargs={"started": services.put})
    thread.start()
    service = services.get(timeout=60)
    try:
        assert service.directions == (("en", "de"),)
        with urlopen(f"{service.url}/health", timeout=10) as answer:
            assert json.load(answer) == {"status": "ok"}
    finally:
        service.stop()
        thread.join(30)
    assert not thread.is_alive()
