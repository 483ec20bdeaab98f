"""Counts the operations that an update of a model launches on a GPU, and their bytes, without one.

    python -m benchmarks.training.launches model.positions=sinusoidal [KEY=VALUE…]

One update of model=tiny and of model=base in float32: forward, loss, backward, norm, clipping and
Adam, of one micro-batch. Model and batch are on torch's ``meta`` device, which computes nothing and
knows no CPU kernels. Views and allocations launch nothing; an operation over a list of tensors
counts once, although a GPU may need a few launches for it. Bytes are those of all tensors that an
operation reads and writes. It does not know how long any takes.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer, optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transformer.cli.config import compose_config, run_settings
from transformer.data.batching.batch import Batch, collate
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.model.build import build_transformer
from transformer.settings.tokenizer import TokenizerConfig
from transformer.tasks.translation import TranslationModule
from transformer.training.optimization import build_optimizer

VOCABULARY = 6000
SENTENCES = 64
LENGTH = 24
NOTHING = {"empty", "empty_like", "new_empty", "detach", "_unsafe_view", "promote_types"}
PICKS = {"embedding", "gather", "index_select"}
"""Operations that read as much of their first argument as they write."""


class Launches(TorchDispatchMode):
    """Counts the operations that compute something, by name, and the bytes that all move."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.bytes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Count and run."""
        library, name = str(function.overloadpacket).split(".")
        result = function(*args, **(kwargs or {}))
        if library == "aten" and not function.is_view and name not in NOTHING:
            self.counts[name] += 1
            read = (result, args[1:]) if name in PICKS else (args, kwargs)
            tensors = [leaf for leaf in tree_leaves((read, result)) if isinstance(leaf, Tensor)]
            self.bytes += sum(_bytes(tensor) for tensor in tensors)
        return result


def _bytes(tensor: Tensor) -> int:
    """Those of its elements; an expanded one has fewer in memory."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def main() -> None:
    """Print a table: a row for each frequent operation, a column for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    overrides = parser.parse_args().overrides
    found = [launches(f"model={name}", *overrides) for name in ("tiny", "base")]
    tiny, base = (each.counts for each in found)
    rows = [(name, tiny[name], base[name]) for name, _ in base.most_common(8)]
    rows.append(("all", tiny.total(), base.total()))
    rows.append(("MB", round(found[0].bytes / 1e6), round(found[1].bytes / 1e6)))
    for row in [("operation", "tiny", "base"), *rows]:
        print("{:48}{:>8}{:>8}".format(*row))


@contextmanager
def using_kernels_of_a_gpu() -> Iterator[None]:
    """Let the meta device have the fused optimizer, attention and dropout of a GPU."""
    fused = "_get_fused_kernels_supported_devices"
    foreach = "_get_foreach_kernels_supported_devices"
    with ExitStack() as patches:
        for each in (
            patch.object(optimizer, fused, lambda: ["meta"]),
            patch.object(_foreach_utils, fused, lambda: ["meta"]),
            patch.object(_foreach_utils, foreach, lambda: ["meta"]),
            patch.object(F, "scaled_dot_product_attention", attention),
            patch.object(F, "dropout", lambda x, p: torch.native_dropout(x, p, True)[0]),
        ):
            patches.enter_context(each)
        yield


def attention(
    query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Tensor | None = None, **options: Any
) -> Tensor:
    """torch's memory-efficient kernel, and what torch does with a mask before each call."""
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            shown, hidden = (torch.scalar_tensor(x, device="meta") for x in (0.0, -math.inf))
            attn_mask = torch.where(attn_mask, shown, hidden)
        keys = attn_mask.size(-1)
        if any(stride % 8 for stride in attn_mask.stride()[:-1]):
            attn_mask = F.pad(attn_mask, (0, -keys % 8))[..., :keys]
        attn_mask = attn_mask.expand(*query.shape[:-1], keys)
    more = True, options["dropout_p"], options["is_causal"]
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    return kernel(query, key, value, attn_mask, *more)[0]


def launches(*overrides: str) -> Launches:
    """The operations of the second update; the first also allocates Adam's moments."""
    # The preset and Adam, and not what the pocket corpus has beside them.
    plain = ["optimizer=adam", "model.query_key_norm=false"]
    settings = [*plain, "model.dropout=0.1", "trainer.gradient_clip_val=1.0", *overrides]
    config = run_settings(compose_config("train", settings))
    unused = Tokenizer.train(
        TokenizerConfig(algorithm="char", vocab_size=None), lambda: [("a", "b")]
    )
    rows = [[4] * LENGTH] * SENTENCES
    batch = collate(rows, rows).to("meta")
    with using_kernels_of_a_gpu():
        with torch.device("meta"):
            model = build_transformer(config.model.sized(VOCABULARY, VOCABULARY)).train()
        module = TranslationModule(config, unused, model=model)
        adam = build_optimizer(config.optimizer, model)
        update(module, adam, batch)
        with Launches() as counted:
            update(module, adam, batch)
    return counted


def update(module: TranslationModule, adam: Optimizer, batch: Batch) -> None:
    """Forward, backward and Adam, as in ``UpdateModule.training_step``."""
    loss, tokens, _ = module.micro_loss(batch)
    loss.backward()
    module.normalize(tokens, adam)
    adam.step()
    adam.zero_grad()


if __name__ == "__main__":
    main()
