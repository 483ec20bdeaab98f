"""Restores the progress of training from a checkpoint.

Lightning records in which of its functions a file was written, and then repeats or leaves out what
it takes for the rest. Here a file is always written after a whole update, and the number of updates
decides everything: the next batches (loader.py), random numbers (seeding.py), the learning rate.
"""

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging

from transformer.common.errors import InputError
from transformer.data.modules.base import BatchModule
from transformer.training.checkpointing.saved_state import loader_state


def restore_progress(checkpoint: dict[str, Any], trainer: Trainer, module: LightningModule) -> None:
    """Change what Lightning is about to restore, so that it resumes after the last update.

    Raises:
        InputError: The weights do not fit the model of the config.
    """
    if not any(isinstance(c, WeightAveraging) for c in trainer.callbacks):  # type: ignore[attr-defined]
        # Without callbacks.ema_decay, training resumes with the weights and not their average.
        checkpoint["state_dict"] = checkpoint.pop("current_model_state", checkpoint["state_dict"])
    for part in ("state_dict", "current_model_state"):
        _check_shapes(checkpoint.get(part, checkpoint["state_dict"]), module)
    done = checkpoint["global_step"]
    loops = trainer.fit_loop.state_dict()
    counted = {"ready": done, "started": done, "processed": done, "completed": done}
    loops["epoch_loop.batch_progress"]["total"] |= counted
    steps = loops["epoch_loop.manual_optimization.optim_step_progress"]["total"]
    steps |= {"ready": done, "completed": done}
    loops["epoch_loop.state_dict"] = {"_batches_that_stepped": done}
    if isinstance(data := trainer.datamodule, BatchModule):  # type: ignore[attr-defined]
        data.resume_from(loader_state(checkpoint))
    checkpoint["loops"] = {"fit_loop": loops}


def validate_now(trainer: Trainer) -> None:
    """Run the validation that was due after the last update; log its metrics at that update."""
    loop = trainer.fit_loop.epoch_loop
    trainer.validating = True
    # Lightning counts an update for its logs when the validation after it is over.
    loop._batches_that_stepped -= 1
    loop.val_loop.run()
    loop._batches_that_stepped += 1
    trainer.training = True


def _check_shapes(weights: dict[str, Any], module: LightningModule) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    saved = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | saved.keys()):
        if expected.get(name) != saved.get(name):
            raise InputError(
                f"the model of the config does not fit the checkpoint: {name} is "
                f"{expected.get(name, 'missing')} and not {saved.get(name, 'missing')}; a run "
                "resumes with the model.… that it started with"
            )
