"""A Transformer sequence-to-sequence framework: pairs of raw text in, text and scores out.

The names that a program needs are imported from here, each when it is first used: ``import
transformer`` alone takes no torch. docs/python.md shows them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformer.common.version import VERSION

if TYPE_CHECKING:
    from transformer.checkpoint.checkpoint import Checkpoint as Checkpoint
    from transformer.checkpoint.checkpoint import load_checkpoint as load_checkpoint
    from transformer.commands.ask import ask as ask
    from transformer.commands.attention import attention as attention
    from transformer.commands.average import average as average
    from transformer.commands.clean import clean as clean
    from transformer.commands.compare import compare as compare
    from transformer.commands.consolidate import consolidate as consolidate
    from transformer.commands.doctor import doctor as doctor
    from transformer.commands.evaluate import evaluate as evaluate
    from transformer.commands.export import export as export
    from transformer.commands.export import push as push
    from transformer.commands.heads import heads as heads
    from transformer.commands.predict import predict as predict
    from transformer.commands.predict import predict_file as predict_file
    from transformer.commands.ray_data import score_files as score_files
    from transformer.commands.ray_data import translate_files as translate_files
    from transformer.commands.report import report as report
    from transformer.commands.score import score_targets as score_targets
    from transformer.commands.select import select as select
    from transformer.commands.serve import serve as serve
    from transformer.commands.shortlist import shortlist as shortlist
    from transformer.commands.stress import stress as stress
    from transformer.commands.text import text as text
    from transformer.commands.translate import translate as translate
    from transformer.commands.translate import translate_file as translate_file
    from transformer.commands.tune import tune as tune
    from transformer.common.errors import InputError as InputError
    from transformer.common.errors import Interrupted as Interrupted
    from transformer.data.datamodules.translation import TranslationData as TranslationData
    from transformer.data.tokenization.tokenizer import Tokenizer as Tokenizer
    from transformer.decoding.constraints.request import Constraints as Constraints
    from transformer.decoding.forced_decoding import score_pairs as score_pairs
    from transformer.decoding.prediction import LanguageModel as LanguageModel
    from transformer.decoding.prediction import Tagger as Tagger
    from transformer.decoding.search.model_step import Ensemble as Ensemble
    from transformer.decoding.translator import Translation as Translation
    from transformer.decoding.translator import Translator as Translator
    from transformer.evaluation.metrics import score as score
    from transformer.interchange.import_model import import_model as import_model
    from transformer.interchange.translators import load_translator as load_translator
    from transformer.model.attention.multi_head import MultiHeadAttention as MultiHeadAttention
    from transformer.model.build import build_transformer as build_transformer
    from transformer.model.decoder import DecoderLayer as DecoderLayer
    from transformer.model.encoder import EncoderLayer as EncoderLayer
    from transformer.model.layers.feedforward import FeedForward as FeedForward
    from transformer.model.transformer import Transformer as Transformer
    from transformer.runs.finetuning import finetuned_config as finetuned_config
    from transformer.runs.resume import resumed_config as resumed_config
    from transformer.runs.resume import resumed_or_new as resumed_or_new
    from transformer.runs.train import train as train
    from transformer.settings.commands import AskConfig as AskConfig
    from transformer.settings.commands import AttentionConfig as AttentionConfig
    from transformer.settings.commands import AverageConfig as AverageConfig
    from transformer.settings.commands import ConsolidateConfig as ConsolidateConfig
    from transformer.settings.commands import ExportConfig as ExportConfig
    from transformer.settings.commands import HeadsConfig as HeadsConfig
    from transformer.settings.commands import ImportConfig as ImportConfig
    from transformer.settings.commands import PushConfig as PushConfig
    from transformer.settings.commands import ReportConfig as ReportConfig
    from transformer.settings.commands import ServeConfig as ServeConfig
    from transformer.settings.commands import ShortlistConfig as ShortlistConfig
    from transformer.settings.corpora import CleanConfig as CleanConfig
    from transformer.settings.corpora import DoctorConfig as DoctorConfig
    from transformer.settings.corpora import Filters as Filters
    from transformer.settings.corpora import Repairs as Repairs
    from transformer.settings.corpora import TextConfig as TextConfig
    from transformer.settings.corpora import Thresholds as Thresholds
    from transformer.settings.data import CorpusConfig as CorpusConfig
    from transformer.settings.data import DataConfig as DataConfig
    from transformer.settings.decoding import SearchConfig as SearchConfig
    from transformer.settings.evaluation import CompareConfig as CompareConfig
    from transformer.settings.evaluation import EvaluateConfig as EvaluateConfig
    from transformer.settings.evaluation import ScoreConfig as ScoreConfig
    from transformer.settings.evaluation import SelectConfig as SelectConfig
    from transformer.settings.evaluation import StressConfig as StressConfig
    from transformer.settings.evaluation import TuneConfig as TuneConfig
    from transformer.settings.metrics import MetricsConfig as MetricsConfig
    from transformer.settings.model import ModelConfig as ModelConfig
    from transformer.settings.run import RunConfig as RunConfig
    from transformer.settings.tokenizer import TokenizerConfig as TokenizerConfig
    from transformer.settings.training import CallbacksConfig as CallbacksConfig
    from transformer.settings.training import LoggerConfig as LoggerConfig
    from transformer.settings.training import LossConfig as LossConfig
    from transformer.settings.training import OptimizerConfig as OptimizerConfig
    from transformer.settings.training import RecoveryConfig as RecoveryConfig
    from transformer.settings.training import ScheduleConfig as ScheduleConfig
    from transformer.settings.training import TrainerConfig as TrainerConfig
    from transformer.settings.translator import PredictConfig as PredictConfig
    from transformer.settings.translator import TranslateConfig as TranslateConfig
    from transformer.settings.translator import TranslatorConfig as TranslatorConfig
    from transformer.tasks.base import Task as Task
    from transformer.tasks.translation import TranslationModule as TranslationModule
    from transformer.tasks.translation import TranslationTask as TranslationTask

__version__ = VERSION

_NAMES = {
    "checkpoint.checkpoint": (
        "Checkpoint",
        "load_checkpoint",
    ),
    "commands.ask": ("ask",),
    "commands.attention": ("attention",),
    "commands.average": ("average",),
    "commands.clean": ("clean",),
    "commands.compare": ("compare",),
    "commands.consolidate": ("consolidate",),
    "commands.doctor": ("doctor",),
    "commands.evaluate": ("evaluate",),
    "commands.export": (
        "export",
        "push",
    ),
    "commands.heads": ("heads",),
    "commands.predict": (
        "predict",
        "predict_file",
    ),
    "commands.ray_data": (
        "score_files",
        "translate_files",
    ),
    "commands.report": ("report",),
    "commands.score": ("score_targets",),
    "commands.select": ("select",),
    "commands.serve": ("serve",),
    "commands.shortlist": ("shortlist",),
    "commands.stress": ("stress",),
    "commands.text": ("text",),
    "commands.translate": (
        "translate",
        "translate_file",
    ),
    "commands.tune": ("tune",),
    "common.errors": (
        "InputError",
        "Interrupted",
    ),
    "data.datamodules.translation": ("TranslationData",),
    "data.tokenization.tokenizer": ("Tokenizer",),
    "decoding.constraints.request": ("Constraints",),
    "decoding.forced_decoding": ("score_pairs",),
    "decoding.prediction": (
        "LanguageModel",
        "Tagger",
    ),
    "decoding.search.model_step": ("Ensemble",),
    "decoding.translator": (
        "Translation",
        "Translator",
    ),
    "evaluation.metrics": ("score",),
    "interchange.import_model": ("import_model",),
    "interchange.translators": ("load_translator",),
    "model.attention.multi_head": ("MultiHeadAttention",),
    "model.build": ("build_transformer",),
    "model.decoder": ("DecoderLayer",),
    "model.encoder": ("EncoderLayer",),
    "model.layers.feedforward": ("FeedForward",),
    "model.transformer": ("Transformer",),
    "runs.finetuning": ("finetuned_config",),
    "runs.resume": (
        "resumed_config",
        "resumed_or_new",
    ),
    "runs.train": ("train",),
    "settings.commands": (
        "AskConfig",
        "AttentionConfig",
        "AverageConfig",
        "ConsolidateConfig",
        "ExportConfig",
        "HeadsConfig",
        "ImportConfig",
        "PushConfig",
        "ReportConfig",
        "ServeConfig",
        "ShortlistConfig",
    ),
    "settings.corpora": (
        "CleanConfig",
        "DoctorConfig",
        "Filters",
        "Repairs",
        "TextConfig",
        "Thresholds",
    ),
    "settings.data": (
        "CorpusConfig",
        "DataConfig",
    ),
    "settings.decoding": ("SearchConfig",),
    "settings.evaluation": (
        "CompareConfig",
        "EvaluateConfig",
        "ScoreConfig",
        "SelectConfig",
        "StressConfig",
        "TuneConfig",
    ),
    "settings.metrics": ("MetricsConfig",),
    "settings.model": ("ModelConfig",),
    "settings.run": ("RunConfig",),
    "settings.tokenizer": ("TokenizerConfig",),
    "settings.training": (
        "CallbacksConfig",
        "LoggerConfig",
        "LossConfig",
        "OptimizerConfig",
        "RecoveryConfig",
        "ScheduleConfig",
        "TrainerConfig",
    ),
    "settings.translator": (
        "PredictConfig",
        "TranslateConfig",
        "TranslatorConfig",
    ),
    "tasks.base": ("Task",),
    "tasks.translation": ("TranslationModule", "TranslationTask"),
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
