"""Translation as a task: sentence pairs, an encoder-decoder, BLEU of real translations."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import torch
from pytorch_lightning import Callback

from transformer.common.errors import InputError
from transformer.data.modules.streaming import StreamData
from transformer.data.modules.translation import DataModule
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.translation.document_translator import in_documents
from transformer.decoding.translation.length_limit import warn_about_length_limit
from transformer.decoding.translation.trained import guided_head
from transformer.decoding.translation.translator import Translator
from transformer.evaluation.metrics import score
from transformer.model.build import build_transformer
from transformer.model.config import ModelConfig
from transformer.tasks.base import Evaluation, Task, prepared, update_settings
from transformer.tasks.bleu_validation import TranslateValidation
from transformer.tasks.translation_module import TranslationModule
from transformer.training.checkpointing.checkpoint_io import Criterion
from transformer.training.config import RunConfig, sized_model


class Translation(Task):
    """The task ``translation``."""

    criterion = Criterion("val/bleu", "max")
    data: DataModule

    def __init__(self, config: RunConfig, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        kind = StreamData if config.data.streaming else DataModule
        self.data = kind(
            config.data,
            config.tokenizer,
            initial_tokenizer=tokenizer,
            links=config.loss.alignment_weight > 0,
        )

    @cached_property
    def module(self) -> TranslationModule:
        """The encoder-decoder and its training step."""
        tokenizer = self.data.tokenizer
        model = build_transformer(model_config(self.config, tokenizer))
        module = TranslationModule(model, **update_settings(self.config, model.config, tokenizer))
        return prepared(module, self.config)

    def callbacks(self) -> Sequence[Callback]:
        """Translate the validation text with the model that trains."""
        config = self.config
        translator = Translator(
            self.module.model,
            self.data.tokenizer,
            config.decoding,
            batch_tokens=config.data.batch_tokens,
            coverage_head=guided_head(asdict(config.loss), self.module.model.config),
        )
        sources, references, ranges = self.data.texts("validation")
        return [
            TranslateValidation(
                in_documents(translator),
                sources,
                references,
                config.callbacks.samples,
                ranges,
                metrics=config.metrics,
            )
        ]

    def evaluator(
        self, checkpoint: Path, device: torch.device | str
    ) -> Callable[[str], Evaluation]:
        """Translate and score."""
        config = self.config
        translator = Translator.load(
            checkpoint,
            search=config.decoding,
            batch_tokens=config.data.batch_tokens,
            device=device,
        )

        def evaluate(split: str) -> Evaluation:
            texts = self.data.texts(split)
            found = in_documents(translator).translate(texts.sources)
            warn_about_length_limit([translator.length_limit.pop_counts()])
            hypotheses = [translation.text for translation in found]
            scores = score(hypotheses, texts.references, config=config.metrics)
            return Evaluation(scores, hypotheses)

        return evaluate


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
    return sized_model(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
