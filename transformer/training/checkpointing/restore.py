"""Where training stands in a checkpoint, and how it comes to stand there again.

Lightning records in which of its functions a file was written, and then repeats or leaves out what
it takes to be the rest. Here a file is always of a whole update, and the number of updates says
all: which batches come next (loader.py), what is drawn at random (seeding.py), the learning rate.
It does not know when files are written.
"""

import logging
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging

from transformer.common.errors import InputError
from transformer.data.modules.base import BatchModule
from transformer.training.checkpointing.saved_state import loader_state

logger = logging.getLogger(__name__)


def stand_at(checkpoint: dict[str, Any], trainer: Trainer, module: LightningModule) -> None:
    """Change what Lightning is about to restore so that it goes on after the last whole update.

    Raises:
        InputError: The weights do not fit the model of the config.
    """
    if "recovery" not in checkpoint:
        _convert(checkpoint)
    if not any(isinstance(c, WeightAveraging) for c in trainer.callbacks):  # type: ignore[attr-defined]
        # With callbacks.ema_decay=0 from now on, the weights go on and not their average.
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
    """Make up for the validation after the last update, with metrics logged as that of it."""
    loop = trainer.fit_loop.epoch_loop
    trainer.validating = True
    # Lightning counts an update for its logs when the validation after it is over.
    loop._batches_that_stepped -= 1
    loop.val_loop.run()
    loop._batches_that_stepped += 1
    trainer.training = True


def _convert(checkpoint: dict[str, Any]) -> None:
    """Take over from a file of format 4 or older what still means the same."""
    logger.warning(
        "the checkpoint is of an older version: weights, optimiser, schedule and best score go on, "
        "the order of the batches begins anew"
    )
    checkpoint["recovery"] = None
    checkpoint["loops"]["fit_loop"]["state_dict"] = {}
    callbacks: dict[str, Any] = {}
    for key, state in checkpoint["callbacks"].items():
        if key.startswith("ModelCheckpoint") and state["monitor"] != "step":
            score = state["best_model_score"]
            callbacks["BestCheckpoint"] = {"score": None if score is None else float(score)}
        elif key.startswith("EarlyStopping"):
            score, waited = float(state["best_score"]), state["wait_count"]
            callbacks["Patience"] = {"score": score, "waited": waited}
    checkpoint["callbacks"] = callbacks


def _check_shapes(weights: dict[str, Any], module: LightningModule) -> None:
    mine = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            raise InputError(
                f"the model of the config does not fit the checkpoint: {name} is "
                f"{mine.get(name, 'not there')} and not {theirs.get(name, 'there')}; a run goes on "
                "with the model.… that it began with"
            )
