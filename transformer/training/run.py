"""One training run: from a typed config to a tested checkpoint.

It wires; what each part does is the part's own business.
"""

import logging
import warnings
from pathlib import Path

from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from transformer.data.datamodule import DataModule
from transformer.data.tokenizer import PAD, Tokenizer
from transformer.decoding.translator import Translator
from transformer.errors import InputError, Interrupted
from transformer.evaluation.metrics import score
from transformer.evaluation.report import print_table, save_report
from transformer.model.build import build_transformer
from transformer.model.checkpoint import PORTABLE, find_checkpoint, portable_part, read_payload
from transformer.model.config import ModelConfig
from transformer.model.transformer import Transformer
from transformer.training.callbacks import GracefulStop, TranslateValidation, build_callbacks
from transformer.training.checkpoint import AtomicCheckpointIO
from transformer.training.config import RunConfig
from transformer.training.loggers import build_loggers
from transformer.training.memory import keep_freed_memory
from transformer.training.module import TranslationModule
from transformer.training.typed import typed

logger = logging.getLogger(__name__)


def train(config: RunConfig, folder: Path) -> dict[str, float]:
    """Train, then test the best checkpoint once.

    Args:
        config: The run.
        folder: The run directory; checkpoints, logs and test results go there.

    Returns:
        The last value of every logged metric, and the scores of the test.

    Raises:
        InputError: The config or the data is wrong.
        Interrupted: The user pressed Ctrl-C; a checkpoint has been written.
    """
    if config.keep_memory:
        keep_freed_memory()
    seed_everything(config.seed, workers=True, verbose=False)
    resume = None if config.checkpoint is None else find_checkpoint(config.checkpoint, "last")
    data = DataModule(
        config.data,
        config.tokenizer,
        initial_tokenizer=_tokenizer_of(resume),
        links=config.loss.alignment_weight > 0,
    )
    data.prepare_data()
    data.setup("fit")
    model = build_transformer(model_config(config, data.tokenizer))
    module = TranslationModule(
        model,
        loss=config.loss,
        optimizer=config.optimizer,
        schedule=config.schedule,
        portable=portable_part(model.config, data.tokenizer.to_state(), dict(config.resolved)),
    )
    trainer = build_trainer(config, folder, validation_of(config, model, data))
    _describe(model, data)
    trainer.fit(module, datamodule=data, ckpt_path=resume)
    _raise_if_interrupted(trainer, folder)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.is_global_zero:
        metrics |= test(folder, config, data)
    return metrics


def model_config(config: RunConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The model's own config: the user's, and what the tokenizer decides.

    Raises:
        InputError: A key is unknown, or a value has the wrong type or is out of its range.
    """
    if not tokenizer.joint and config.model["tie_embeddings"] == "all":
        raise InputError(
            "model.tie_embeddings=all needs one vocabulary for both sides; "
            "set tokenizer.joint=true or model.tie_embeddings=decoder"
        )
    sizes = {
        "source_vocab_size": tokenizer.source_vocab_size,
        "target_vocab_size": tokenizer.target_vocab_size,
        "pad": PAD,
    }
    return typed(ModelConfig, {**config.model, **sizes}, "model")


def validation_of(config: RunConfig, model: Transformer, data: DataModule) -> TranslateValidation:
    """Translate the validation text with the model that trains."""
    translator = Translator(
        model, data.tokenizer, config.decoding, batch_tokens=config.data.batch_tokens
    )
    sources, references = data.texts("validation")
    return TranslateValidation(translator, sources, references, config.callbacks.samples)


def build_trainer(config: RunConfig, folder: Path, validation: TranslateValidation) -> Trainer:
    """Lightning's trainer with the user's arguments and our callbacks.

    Raises:
        InputError: Lightning refuses an argument.
    """
    _quieten_lightning()
    arguments = dict(config.trainer)
    # Lightning counts micro-batches between validations, the config counts updates.
    arguments["val_check_interval"] *= arguments["accumulate_grad_batches"]
    try:
        return Trainer(
            **arguments,
            default_root_dir=folder,
            plugins=[AtomicCheckpointIO()],
            logger=build_loggers(config.logger, folder),
            callbacks=list(build_callbacks(config.callbacks, validation, folder / "checkpoints")),
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, ValueError, TypeError) as error:
        raise InputError(f"trainer: {' '.join(str(error).split())}") from error


def test(folder: Path, config: RunConfig, data: DataModule) -> dict[str, float]:
    """Translate and score the test splits with the best checkpoint; write what came of it."""
    translator = Translator.load(
        folder, search=config.decoding, batch_tokens=config.data.batch_tokens
    )
    metrics: dict[str, float] = {}
    for split in data.splits:
        if split == "validation":
            continue
        sources, references = data.texts(split)
        hypotheses = [translation.text for translation in translator.translate(sources)]
        scores = score(hypotheses, references)
        save_report(folder, split, scores, hypotheses)
        print_table(split, scores)
        metrics |= {f"{split}/{s.name.lower()}": s.value for s in scores}
    return metrics


def _tokenizer_of(checkpoint: Path | None) -> Tokenizer | None:
    """The tokenizer a checkpoint was trained with: going on needs that one."""
    if checkpoint is None:
        return None
    return Tokenizer.from_state(read_payload(checkpoint)[PORTABLE]["tokenizer"])


def _quieten_lightning() -> None:
    """Keep its advertisements, and its warnings about what is meant so, out of the log."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*LeafSpec.*",
        "Experiment logs directory.*",
        "Checkpoint directory.*exists and is not empty.*",
        ".*in eval mode at the start of training.*",
    ):
        warnings.filterwarnings("ignore", message=message)


def _describe(model: Transformer, data: DataModule) -> None:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    logger.info(
        "%s parameters, vocabulary %d source, %d target",
        f"{parameters:,}",
        data.tokenizer.source_vocab_size,
        data.tokenizer.target_vocab_size,
    )


def _raise_if_interrupted(trainer: Trainer, folder: Path) -> None:
    stops = [callback for callback in trainer.callbacks if isinstance(callback, GracefulStop)]  # type: ignore[attr-defined]
    if any(stop.interrupted for stop in stops):
        raise Interrupted(f"stopped; go on with: python train.py checkpoint={folder}")
