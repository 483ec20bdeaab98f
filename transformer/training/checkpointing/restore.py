"""Restores the state of training from a checkpoint.

Lightning records in which of its functions a file was written, and repeats or skips the rest. Here
a file is always of a whole update, and the number of updates determines all else: the next batches
(loader.py), the random numbers (seeding.py), the learning rate. It does not know when files are
written.
"""

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging

from transformer.common.errors import InputError
from transformer.data.modules.base import BatchModule
from transformer.training.checkpointing.saved_state import loader_state


def restore_after_update(
    checkpoint: dict[str, Any], trainer: Trainer, module: LightningModule
) -> None:
    """Change what Lightning restores, so that training continues after the last whole update.

    Raises:
        InputError: The file is of an older version, or its weights do not fit the model.
    """
    if checkpoint.get("recovery") is None:
        raise InputError(
            "the checkpoint is of an older version, from which training cannot go on; begin a run "
            "with its weights, finetune_from=CHECKPOINT"
        )
    if not any(isinstance(c, WeightAveraging) for c in trainer.callbacks):  # type: ignore[attr-defined]
        # With callbacks.ema_decay=0 from now on, training continues from the weights themselves.
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
    """Run the missed validation after the last update, and log its metrics for that update."""
    loop = trainer.fit_loop.epoch_loop
    trainer.validating = True
    # Lightning counts an update for its logs when the validation after it is over.
    loop._batches_that_stepped -= 1
    loop.val_loop.run()
    loop._batches_that_stepped += 1
    trainer.training = True


def _check_shapes(weights: dict[str, Any], module: LightningModule) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"the model of the config does not fit the checkpoint: {name} is "
                f"{expected.get(name, 'missing')} in one and {found.get(name, 'missing')} in the "
                "other; a run goes on with the model.… that it began with"
            )
