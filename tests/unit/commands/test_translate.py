"""What a program does with the functions of ``translate`` and ``serve``."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs.tuning_runs import write_run
from transformer.commands.translate import translate, translate_file
from transformer.common.errors import InputError
from transformer.decoding.constraints.request import Constraints, Request
from transformer.decoding.translator import Translator
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
