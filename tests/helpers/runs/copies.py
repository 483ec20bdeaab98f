"""A recipe whose three stages only copy files."""

from itertools import pairwise
from pathlib import Path

import pytest

from transformer.recipes import runner
from transformer.recipes.plan import Stage


class Copies:
    """Three stages, each of which copies what the one before has written.

    Attributes:
        home: The folder of the file ``given``, which the first reads, and of the recipe ``r``.
        ran: Stages that have ended well in the last call.
        log: Its lines.
        fails: The exit code of a stage, by its name.
        verb: Of all stages.
    """

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.folder = home, home / "r"
        self.ran, self.log, self.fails = list[str](), list[str](), dict[str, int]()
        self.verb, self.received = "select", None
        (home / "given").write_text("text")
        patch.setattr(runner, "call", self._call)

    def stages(self, second: int = 1, **free: str) -> list[Stage]:
        files = [self.home / "given", *(self.folder / f"0{n}_copy" / "out" for n in (1, 2, 3))]
        return [
            Stage(
                folder=output.parent,
                verb=self.verb,
                settings=(f"value={second if number == 2 else 1}", *map("=".join, free.items())),
                own={"input": source, "output": output},
                outputs=(output,),
            )
            for number, (source, output) in enumerate(pairwise(files), 1)
        ]

    def run(self, second: int = 1, **free: str) -> list[str]:
        """Run the recipe, the second stage with a setting; returns the stages that ran."""
        self.folder.mkdir(exist_ok=True)
        self.ran.clear()
        self.log.clear()
        runner.run_stages(self.stages(second, **free), self.home / "cache", self.log.append)
        return list(self.ran)

    def states(self, second: int = 1) -> list[str]:
        return list(runner.states(self.stages(second), self.home / "cache"))

    def _call(self, stage: Stage) -> tuple[int, int | None]:
        if code := self.fails.get(stage.name):
            (stage.folder / "part").touch()
            return code, None
        self.ran.append(stage.name)
        stage.outputs[0].write_bytes(
            stage.inputs[0].read_bytes() + stage.settings[0].removeprefix("value=1").encode()
        )
        return 0, self.received
