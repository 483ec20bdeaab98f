"""Faults to plant in a process before it trains."""

import errno
import os
import random
import signal
from typing import Any

import torch


class KilledAt:
    """Kills its own process in the n-th call of ``uuid4``, ``save``, ``fsync`` or ``replace``.

    Writing a file takes these; ``save`` has written a ``part`` of its bytes then.
    """

    def __init__(self, name: str, call: int, part: float = 0.5) -> None:
        self.name, self.call, self.part = name, call, part

    def __call__(self) -> None:
        """Plant it."""
        import uuid

        owners: dict[str, Any] = {"uuid4": uuid, "save": torch, "fsync": os, "replace": os}
        owner = owners[self.name]
        function = getattr(owner, self.name)

        def faulty(*args: Any, **keywords: Any) -> Any:
            self.call -= 1
            if self.call == 0:
                if self.name == "save":
                    import io

                    whole = io.BytesIO()
                    function(args[0], whole)
                    args[1].write(whole.getvalue()[: int(self.part * whole.tell())])
                    args[1].flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **keywords)

        setattr(owner, self.name, faulty)


def random_fault(dice: random.Random) -> KilledAt:
    """One of the moments at which a file is being written."""
    name = dice.choice(["uuid4", "save", "fsync", "replace"])
    return KilledAt(name, dice.randint(1, 15), dice.random())


class DiskFull:
    """Lets the calls from ``first`` to ``last`` that write a checkpoint find no space."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.calls = first, last, 0

    def __call__(self) -> None:
        """Plant it."""
        save = torch.save

        def faulty(values: Any, file: Any) -> None:
            self.calls += 1
            if self.first <= self.calls <= self.last:
                file.write(b"half of it")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            save(values, file)

        torch.save = faulty


class SignalAt:
    """Sends its own process signals when a callback's hook is called for the n-th time.

    Args:
        hook: Such as ``on_train_batch_end``, ``translate`` and ``end`` for the translating of a
            validation and the last file, or ``prepare`` and ``test`` for what is around training.
        call: Which call, from 1.
        signals: Sent one after the other.
    """

    def __init__(self, hook: str, call: int, *signals: int) -> None:
        self.hook, self.call, self.signals = hook, call, signals

    def __call__(self) -> None:
        """Plant it."""
        from transformer.data.datamodules.translation import TranslationData
        from transformer.tasks.translation import TranslateValidation, TranslationTask
        from transformer.training.callbacks.metrics import Measure
        from transformer.training.checkpointing import LastCheckpoint

        around: dict[str, Any] = {
            "prepare": (TranslationData, "prepare_data"),
            "translate": (TranslateValidation, "on_validation_epoch_start"),
            "end": (LastCheckpoint, "on_train_end"),
            "test": (TranslationTask, "evaluator"),
        }
        owner, name = around.get(self.hook, (Measure, self.hook))
        function = getattr(owner, name)

        def hooked(*arguments: Any, **keywords: Any) -> Any:
            self.call -= 1
            if self.call == 0:
                for number in self.signals:
                    os.kill(os.getpid(), number)
            return function(*arguments, **keywords)

        setattr(owner, name, hooked)
