"""Imported by the process that others are forked from: what each of them needs is there already."""

import gc
import importlib
import pkgutil
from contextlib import suppress

import pytest  # noqa: F401  every child runs the main module of its parent anew

import transformer
from tests.helpers.suite.compositions import remember
from tests.helpers.suite.imports import hide_unused_packages
from transformer.__main__ import VERBS
from transformer.cli.config.compose import compose_config
from transformer.common.errors import InputError
from transformer.quality.checks.languages import Language

LATER = [
    "ctranslate2",
    "ftfy",
    "safetensors.torch",
    "sacrebleu.tokenizers.tokenizer_13a",
    "torch._dynamo",
    "torch.utils.serialization.config",
]
"""What the verbs import in their functions."""

gc.disable()  # until the end, as in tests/conftest.py
hide_unused_packages()
modules = [module.name for module in pkgutil.walk_packages(transformer.__path__, "transformer.")]
for name in (*LATER, *modules):
    importlib.import_module(name)
remember()
for verb in VERBS:
    for given in ([], ["checkpoint=x"]):
        with suppress(InputError):  # a verb needs a checkpoint, or has no such key
            compose_config(verb, given)
compose_config("train", ["data=files", "tokenizer=bpe", "decoding=greedy"])
Language.of("en", [])  # loads the model that tells languages apart
# What is frozen is not collected in the children, which would copy its pages.
gc.freeze()
gc.enable()
