"""Memory of a rank of ``trainer=fsdp`` while it saves, resumes, and makes one file at the end.

    export MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=65536
    python -m torch.distributed.run --standalone --nproc-per-node=2 \\
        -m benchmarks.training.sharded_memory KEY=VALUE…

It is ``transformer train KEY=VALUE…`` with a line on stderr for each of these: the memory before,
and its highest rise. Files that are mapped do not count: the system takes their memory away when it
needs it. A new run keeps its parts, so that it can be resumed with ``checkpoint=RUN``. The two
variables let the C library return freed memory at once; ``keep_memory=false`` is needed, too.
"""

import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer

from transformer.__main__ import main
from transformer.runs import train as run
from transformer.training.checkpointing import LastCheckpoint


class Watch:
    """The highest memory of this process since a moment, in MiB."""

    def __init__(self) -> None:
        self.before = self.peak = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self) -> None:
        self.before = self.peak = self.now()

    def say(self, what: str) -> None:
        print(f"{what}: {self.before} MiB, +{self.peak - self.before} MiB", file=sys.stderr)

    @staticmethod
    def now() -> int:
        [kibibytes] = re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(kibibytes) // 1024

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.002)


def install(watch: Watch) -> None:
    """Measure what the training of this process does with checkpoints."""
    save = Trainer.save_checkpoint
    start = LastCheckpoint.on_train_start
    consolidate = run.consolidate
    resumes = any(argument.startswith("checkpoint=") for argument in sys.argv)

    def saving(trainer: Any, path: Path, *arguments: Any, **settings: Any) -> None:
        watch.begin()
        save(trainer, path, *arguments, **settings)
        trainer.strategy.checkpoint_io.wait()
        watch.say(f"rank {trainer.global_rank} saves {path.name} of {trainer.global_step}")

    def starting(callback: Any, trainer: Any, module: Any) -> None:
        if resumes:
            # Since the start of the process.
            watch.say(f"rank {trainer.global_rank} resumes")
        start(callback, trainer, module)

    def consolidating(folder: Path) -> None:
        if resumes:
            watch.begin()
            consolidate(folder)
            watch.say("rank 0 makes one file of each")

    Trainer.save_checkpoint = saving  # type: ignore[assignment,method-assign]
    LastCheckpoint.on_train_start = starting  # type: ignore[assignment,method-assign]
    run.consolidate = consolidating


if __name__ == "__main__":
    install(Watch())
    sys.exit(main(["train", *sys.argv[1:]]))
