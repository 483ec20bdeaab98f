"""Warnings about settings of a run; it changes none."""

import logging
from collections.abc import Sequence

import torch

from transformer.data.datamodules.base import BatchModule
from transformer.evaluation.metrics import unspaced_warning
from transformer.settings.run import RunConfig
from transformer.training.optimization import noam
from transformer.training.precision import multiplies_bfloat16, resolve_precision

logger = logging.getLogger(__name__)

_MIN_FACTOR = 0.05
"""A smaller factor of ``noam`` is probably a learning rate, meant for another schedule."""

_MIN_TOKENS_PER_SUBWORD = 25
"""Fewest tokens of the training text for each subword, on average.

Gowda and May 2020 (arXiv:2004.02334) find the best sizes where 95% of the subwords occur at least
100 times.
"""

_MIN_VOCABULARY = 1000
"""Bytes, symbols and the alphabet are in a vocabulary of any size: a smaller one is not judged."""


def warn_about_vocabulary(config: RunConfig, data: BatchModule) -> None:
    """Log a warning if the training text is small for the vocabulary that was learned from it."""
    lengths = data.lengths().get("train")
    learned = {*config.tokenizer.algorithms} <= {"bpe", "unigram"}
    is_new = config.checkpoint is None and config.finetune_from is None
    if lengths is None or not learned or not is_new:
        return
    source, target = (int(side.sum()) for side in lengths)
    if config.tokenizer.one_vocabulary:
        tokens_and_sizes = [(source + target, data.tokenizer.source_vocab_size)]
    else:
        tokens_and_sizes = [
            (source, data.tokenizer.source_vocab_size),
            (target, data.tokenizer.target_vocab_size),
        ]
    tokens, size = min(tokens_and_sizes, key=lambda side: side[0] / side[1])
    if size > _MIN_VOCABULARY and tokens < _MIN_TOKENS_PER_SUBWORD * size:
        advised = max(_MIN_VOCABULARY, tokens // 100)
        advised -= advised % 10 ** (len(str(advised)) - 1)  # 4,521 as 4,000
        logger.warning(
            "%s subwords for %s tokens of training text: each occurs %.1f times on average, too "
            "seldom to be learned; try tokenizer.vocab_size=%d",
            f"{size:,}",
            f"{tokens:,}",
            tokens / size,
            advised,
        )


def warn_about_tokenization(config: RunConfig, references: Sequence[Sequence[str]]) -> None:
    """Log a warning if BLEU of a validation would take whole sentences for words."""
    if "bleu" in config.metrics.validated:
        warning = unspaced_warning(references, config.metrics.tokenize, "metrics.tokenize")
        if warning is not None:
            logger.warning(warning)


def warn_about_warmup(config: RunConfig, end_of_epochs: int) -> None:
    """Log a warning if training ends before the peak of the learning rate.

    ``end_of_epochs`` is the last update of ``trainer.max_epochs``; -1 if that sets no bound.
    """
    warmup = config.schedule.warmup
    bounds = {"max_steps": config.trainer.max_steps, "max_epochs": end_of_epochs}
    ends = [(updates, key) for key, updates in bounds.items() if updates > 0]
    if ends and min(ends)[0] <= warmup:
        updates, key = min(ends)
        logger.warning(
            "schedule.warmup=%d: the learning rate still rises when training ends, after %d "
            "updates; in a run that is to learn, set it lower or trainer.%s higher",
            warmup,
            updates,
            key,
        )


def warn_about_config(config: RunConfig) -> None:
    """Log a warning for each setting that probably does not do what the user wants."""
    warmup = config.schedule.warmup
    rate = config.optimizer.lr
    if config.schedule.name == "noam" and rate < _MIN_FACTOR:
        peak = rate * noam(max(warmup, 1), warmup, config.model.d_model)
        logger.warning(
            "schedule=noam: optimizer.lr=%g is a factor on its formula, 1.0 in the paper; with it "
            "the learning rate never exceeds %.2g",
            rate,
            peak,
        )
    if config.optimizer.name == "muon" and config.model.lora_rank:
        logger.warning(
            "optimizer=muon steps whole matrices, and with model.lora_rank=%d only adapters learn: "
            "all is stepped as by optimizer=adamw",
            config.model.lora_rank,
        )
    weight = config.loss.consistency_weight
    if config.loss.consistency == "none" and weight:
        logger.warning(
            "loss.consistency_weight=%g has no effect without a second pass; set loss=r_drop",
            weight,
        )
    model = config.model
    dropouts = (model.dropout, model.attention_dropout, model.activation_dropout, model.layer_drop)
    if config.loss.consistency == "r_drop" and not any(
        (*dropouts, model.source_token_dropout, model.target_token_dropout)
    ):
        logger.warning(
            "loss=r_drop compares two passes, which are equal without dropout, in the time of "
            "both; set model.dropout above 0, or loss=label_smoothed"
        )
    temperature = config.data.temperature
    weighted = any(corpus.weight is not None for corpus in (config.data.corpora or {}).values())
    if temperature is not None and (weighted or not config.data.corpora):
        logger.warning(
            "data.temperature=%g has no effect %s",
            temperature,
            "beside the weights of data.corpora" if weighted else "without data.corpora",
        )
    on_cpu = config.trainer.accelerator == "cpu"
    precision = resolve_precision(config.trainer).precision
    narrow = precision == "bf16-mixed" or config.loss.bfloat16 is True
    if on_cpu and narrow and multiplies_bfloat16(torch.device("cpu")) is False:
        logger.warning(
            "this processor has no instructions for products in bfloat16; float32 is probably "
            "faster here: try precision=auto loss.bfloat16=auto"
        )
