"""Which tests of a parallel run one worker takes: those of a file, or of files that share much."""

from xdist.scheduler import LoadFileScheduling

SHARE_TRANSFORMERS = {
    "tests/parity/test_architecture_imports.py",
    "tests/parity/test_huggingface.py",
    "tests/parity/test_m2m_import.py",
    "tests/parity/test_marian.py",
    "tests/parity/test_marian_import.py",
    "tests/parity/test_marian_ssru.py",
    "tests/system/interchange/test_hub.py",
    "tests/unit/data/tokenization/test_file_vocabulary.py",
    "tests/unit/interchange/test_architectures.py",
}
"""Each worker would import it anew, ten seconds with the models that these files compare."""


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """One worker takes all tests of a file, and the files that import transformers."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "transformers" if file in SHARE_TRANSFORMERS else file
