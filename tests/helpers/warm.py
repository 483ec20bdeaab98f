"""Imported by the process that others are forked from: what each of them needs is there already."""

import gc
import importlib
import pkgutil

import pytest  # noqa: F401  every child runs the main module of its parent anew

import transformer
from transformer.cli.config.compose import compose_config
from transformer.data.quality.checks.languages import Language

LATER = [
    "ftfy",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "safetensors.torch",
    "sacrebleu.tokenizers.tokenizer_13a",
    "torch._dynamo",
    "torch.utils.serialization.config",
]
"""What the verbs import in their functions."""

modules = [module.name for module in pkgutil.walk_packages(transformer.__path__, "transformer.")]
for name in (*LATER, *modules):
    importlib.import_module(name)
compose_config("train", [])
Language("en", [])  # loads the model that tells languages apart
# What is frozen is not collected in the children, which would copy its pages.
gc.freeze()
