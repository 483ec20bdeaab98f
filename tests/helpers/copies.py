"""A recipe whose three stages only copy files."""

from itertools import pairwise
from pathlib import Path

from transformer.recipes.chain import run_chain
from transformer.recipes.manifest import Manifest
from transformer.recipes.stage import Stage


class Copies:
    """Three stages, each of which copies what the one before has written."""

    def __init__(self, home: Path) -> None:
        self.home, self.done = home, list[str]()
        self.code, self.fails_in, self.verb = 0, "", "select"
        self.said, self.leaves = list[str](), tuple[str, ...]()
        (home / "given").write_text("text")

    def plan(self, value: int = 1) -> list[Stage]:
        files = [self.home / "given", *(self.home / "r" / f"0{n}_copy" / "out" for n in (1, 2, 3))]
        return [
            Stage(
                name=output.parent.name,
                verb=self.verb,
                arguments=("output=x",),
                config={"value": value, "device": "cpu", "seed": number},
                inputs=(source,),
                outputs=(output,),
                folder=output.parent,
            )
            for number, (source, output) in enumerate(pairwise(files), 1)
        ]

    def __call__(self, stage: Stage) -> int:
        if stage.name == self.fails_in:
            for name in self.leaves:
                (stage.folder / name).touch()
            return self.code
        self.done.append(stage.name)
        stage.outputs[0].write_bytes(stage.inputs[0].read_bytes())
        return 0

    def run(self, redo_from: str | None = None, **settings: int) -> list[str]:
        (self.home / "r").mkdir(exist_ok=True)
        self.done.clear()
        self.said.clear()
        plan = self.plan(**settings)
        run_chain(
            plan, lambda: Manifest(self.home / "r", "copies"), self.said.append, self, redo_from
        )
        return list(self.done)
