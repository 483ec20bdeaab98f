"""A Transformer sequence-to-sequence framework: pairs of raw text in, text and scores out.

The names that a program needs are imported from here, each when it is first used: ``import
transformer`` alone takes no torch. docs/python.md shows them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.common.errors import InputError as InputError
    from transformer.data.config import CorpusConfig as CorpusConfig
    from transformer.data.config import DataConfig as DataConfig
    from transformer.data.tokenization.config import TokenizerConfig as TokenizerConfig
    from transformer.data.tokenization.tokenizer import Tokenizer as Tokenizer
    from transformer.decoding.constraints.request import Constraints as Constraints
    from transformer.decoding.forced import score_pairs as score_pairs
    from transformer.decoding.prediction.language_model import LanguageModel as LanguageModel
    from transformer.decoding.prediction.tagger import Tagger as Tagger
    from transformer.decoding.search.config import SearchConfig as SearchConfig
    from transformer.decoding.search.ensemble import Ensemble as Ensemble
    from transformer.decoding.translation.result import Translation as Translation
    from transformer.decoding.translation.translator import Translator as Translator
    from transformer.evaluation.metrics import MetricsConfig as MetricsConfig
    from transformer.evaluation.metrics import score as score
    from transformer.model.attention.multi_head import MultiHeadAttention as MultiHeadAttention
    from transformer.model.build import build_transformer as build_transformer
    from transformer.model.checkpoint.checkpoint import Checkpoint as Checkpoint
    from transformer.model.checkpoint.checkpoint import load_checkpoint as load_checkpoint
    from transformer.model.config import ModelConfig as ModelConfig
    from transformer.model.decoder import DecoderLayer as DecoderLayer
    from transformer.model.encoder import EncoderLayer as EncoderLayer
    from transformer.model.layers.feedforward import FeedForward as FeedForward
    from transformer.model.transformer import Transformer as Transformer
    from transformer.runs.train import train as train
    from transformer.tasks.base import Task as Task
    from transformer.tasks.registry import evaluate as evaluate
    from transformer.tasks.translation import TranslationTask as TranslationTask
    from transformer.tasks.translation_module import TranslationModule as TranslationModule
    from transformer.training.config import RunConfig as RunConfig
    from transformer.training.losses.config import LossConfig as LossConfig
    from transformer.training.optimization.divergence import RecoveryConfig as RecoveryConfig
    from transformer.training.optimization.optimizer import OptimizerConfig as OptimizerConfig
    from transformer.training.optimization.schedule import ScheduleConfig as ScheduleConfig
    from transformer.training.trainer_config import CallbacksConfig as CallbacksConfig
    from transformer.training.trainer_config import LoggerConfig as LoggerConfig
    from transformer.training.trainer_config import TrainerConfig as TrainerConfig

__version__ = "0.1.0"

_NAMES = {
    "common.errors": ("InputError",),
    "data.config": ("CorpusConfig", "DataConfig"),
    "data.tokenization.config": ("TokenizerConfig",),
    "data.tokenization.tokenizer": ("Tokenizer",),
    "decoding.constraints.request": ("Constraints",),
    "decoding.forced": ("score_pairs",),
    "decoding.prediction.language_model": ("LanguageModel",),
    "decoding.prediction.tagger": ("Tagger",),
    "decoding.search.config": ("SearchConfig",),
    "decoding.search.ensemble": ("Ensemble",),
    "decoding.translation.result": ("Translation",),
    "decoding.translation.translator": ("Translator",),
    "evaluation.metrics": ("MetricsConfig", "score"),
    "model.attention.multi_head": ("MultiHeadAttention",),
    "model.build": ("build_transformer",),
    "model.checkpoint.checkpoint": ("Checkpoint", "load_checkpoint"),
    "model.config": ("ModelConfig",),
    "model.decoder": ("DecoderLayer",),
    "model.encoder": ("EncoderLayer",),
    "model.layers.feedforward": ("FeedForward",),
    "model.transformer": ("Transformer",),
    "runs.train": ("train",),
    "tasks.base": ("Task",),
    "tasks.registry": ("evaluate",),
    "tasks.translation": ("TranslationTask",),
    "tasks.translation_module": ("TranslationModule",),
    "training.config": ("RunConfig",),
    "training.losses.config": ("LossConfig",),
    "training.optimization.divergence": ("RecoveryConfig",),
    "training.optimization.optimizer": ("OptimizerConfig",),
    "training.optimization.schedule": ("ScheduleConfig",),
    "training.trainer_config": ("CallbacksConfig", "LoggerConfig", "TrainerConfig"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
