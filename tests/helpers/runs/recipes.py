"""Recipes called as a user does, each stage in a forked process that can be killed."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.helpers.runs.processes import FORKS, _prepare, exit_code
from transformer.recipes.plan import Stage


def recipe(
    arguments: Sequence[str], home: Path, *, fault_in: str = "", fault: Callable[[], None] = list
) -> int:
    """Run ``transformer recipe=…`` in a folder; what it says is added to the file ``said`` there.

    Args:
        arguments: Of the call.
        home: The folder.
        fault_in: A stage that the fault is planted in.
        fault: Where it kills the stage, the recipe is killed as well.
    """
    process = FORKS.Process(
        target=_recipe, args=(list(arguments), home, fault_in, fault), daemon=False
    )
    process.start()
    return exit_code(process)


def _recipe(arguments: list[str], home: Path, fault_in: str, fault: Callable[[], None]) -> None:
    from transformer.__main__ import main
    from transformer.recipes import runner

    def forked(stage: Stage) -> tuple[int, int | None]:
        """In place of ``call``: no time is lost with imports."""
        child = os.fork()
        if not child:
            sys.argv = ["transformer", stage.verb, *stage.arguments]
            if stage.name == fault_in:
                fault()
            code = 1
            try:
                code = main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            finally:
                sys.stdout.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
        return code, None

    _prepare(home)
    os.chdir(home)
    runner.call = forked
    sys.argv = ["transformer", *arguments]
    sys.exit(main())
