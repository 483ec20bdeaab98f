"""``translate``: a Unix filter, one line in, one line out, flushed as it goes."""

import json
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from omegaconf import DictConfig

from transformer.cli.compose import compose_config
from transformer.cli.exit import exit_code_of
from transformer.data.corpus import read_lines
from transformer.errors import InputError
