"""Prints the test files of what has changed since a commit, for ``make check``.

    python scripts/changed_tests.py [COMMIT]

A file of the package has the tests of its own name, or those of its folder. COMMIT is HEAD unless
given; files that git does not know yet count as changed. It does not know which tests import what.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["tests/unit/test_docs.py", "tests/unit/test_docs_commands.py"]


def related_tests(changed: str, root: Path = ROOT) -> list[str]:
    """The test files or folders of one changed file, by paths from the root."""
    path = Path(changed)
    match path.parts:
        case ("tests", *_) if path.name.startswith("test_"):
            tests = [changed]
        case ("transformer", *folders, _):
            folder = Path("tests/unit", *folders)
            test = folder / f"test_{path.name}"
            tests = [str(test if (root / test).exists() else folder)]
        case ("conf", *_):
            tests = ["tests/regression/test_configs.py"]
        case _:
            tests = PAGES if path.suffix == ".md" else []
    return [test for test in tests if (root / test).exists()]


def changed_files(commit: str) -> Iterable[str]:
    """Paths from the root, of tracked and of new files."""
    for call in (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run(["git", *call], cwd=ROOT, check=True, capture_output=True, text=True)
        yield from done.stdout.splitlines()


if __name__ == "__main__":
    files = changed_files(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
    print(*sorted({test for file in files for test in related_tests(file)}))
