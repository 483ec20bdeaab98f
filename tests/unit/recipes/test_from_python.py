"""Recipes and servers from a program."""

from pathlib import Path

import pytest

from tests.helpers.serving.chat_server import ChatServer
from transformer import AskConfig, ask
from transformer.cli.recipe import plan_recipe
from transformer.recipes.distill import Distill


def test_the_stages_of_a_recipe(base: list[str], tmp_path: Path) -> None:
    student = ["model.d_model=32"]
    plan = plan_recipe(Distill(text="distilled"), tmp_path / "r", base, {"student": student})
    names = ["text", "teacher_1", "evaluate_teachers", "translate", "student", "evaluate"]
    assert [stage.name[3:] for stage in plan.stages] == names
    assert [stage.name[3:] for stage in plan.stages if {*student} & {*stage.settings}] == [
        "student"
    ]


def test_a_server_translates_a_file(
    server: ChatServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").write_text("a\nb\na\n")
    shown: list[tuple[int, int, str]] = []
    config = AskConfig(
        server=server.url,
        model_name="m",
        input=tmp_path / "in",
        source="en",
        target="de",
        output=tmp_path / "out",
        api_key_env=None,
    )
    asked = ask(config, show=lambda *done: shown.append(done))
    assert {file.name: count for file, count in asked.lines.items()} == {
        "source.txt": 3,
        "target.txt": 3,
        "left_out.jsonl": 0,
    }
    assert asked.answers.keys() == {"a", "b"} and shown[-1][:2] == (2, 2)
    assert capfd.readouterr() == ("", "")
