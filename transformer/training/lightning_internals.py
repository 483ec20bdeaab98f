"""What is changed inside Lightning's trainer, because it has no setting for it.

tests/unit/training/test_lightning_internals.py holds each function to the pinned version.
"""

from typing import Any

from pytorch_lightning import Trainer


def leave_signals(trainer: Trainer) -> None:
    """Let our callback alone handle signals (graceful_shutdown.py).

    Lightning's handler sends a tensor to the other ranks at any time, which may be in the middle of
    another message, and before each update its loop asks all ranks for a signal.
    """
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def begin_after_update(trainer: Trainer) -> None:
    """Continue after a whole update: otherwise Lightning repeats or skips a part of its loop."""
    trainer.fit_loop.epoch_loop.restarting = False


def set_max_steps(trainer: Trainer, updates: int) -> None:
    """Set ``Trainer.max_steps``: Lightning calls no callback of a run that has no update left.

    Its last validation, which a signal has prevented, could not be made up for.
    """
    trainer.fit_loop.epoch_loop.max_steps = updates


def loop_state(trainer: Trainer, done: int) -> dict[str, Any]:
    """The state of Lightning's loops after so many updates.

    The state that Lightning stores depends on the hook in which it is stored; after it, Lightning
    would count an update twice, or skip a validation.
    """
    loops: dict[str, Any] = trainer.fit_loop.state_dict()
    counted = {"ready": done, "started": done, "processed": done, "completed": done}
    loops["epoch_loop.batch_progress"]["total"] |= counted
    steps = loops["epoch_loop.manual_optimization.optim_step_progress"]["total"]
    steps |= {"ready": done, "completed": done}
    loops["epoch_loop.state_dict"] = {"_batches_that_stepped": done}
    return {"fit_loop": loops}


def validate_now(trainer: Trainer) -> None:
    """Run the validation that was due after the last update; log its metrics at that update."""
    loop = trainer.fit_loop.epoch_loop
    trainer.validating = True
    # Lightning counts an update for its logs when the validation after it is over.
    done = loop._batches_that_stepped
    loop._batches_that_stepped = max(0, done - 1)
    loop.val_loop.run()
    loop._batches_that_stepped = done
    trainer.training = True
