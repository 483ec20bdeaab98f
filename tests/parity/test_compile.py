"""``torch.compile`` traces a whole model without a break, and changes no number."""

import torch

from tests.helpers.models import tiny_transformer
from tests.helpers.processes import FORKS, exit_code
from tests.helpers.tolerance import assert_close
from transformer.data.batching.batch import collate
from transformer.data.batching.packed_batch import pack

SMALL = {"encoder_layers": 1, "decoder_layers": 1}


def compiled_equals_eager() -> None:
    source = torch.tensor([[5, 6, 3, 0], [5, 6, 7, 3]])
    target = torch.tensor([[2, 8, 9, 10, 11], [2, 12, 13, 14, 0]])
    for changes in (
        {},
        {"positions": "rotary", "num_kv_heads": 2, "norm": "rms", "activation": "swiglu"},
        {"positions": "relative", "pattern": "bigbird"},
        {"positions": "alibi", "query_key_norm": True},
    ):
        model = tiny_transformer(**SMALL, **changes)
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        assert_close(compiled(source, target), model(source, target))
        if changes.get("positions") in (None, "rotary"):
            packed = pack(collate([[5, 6], [5, 6, 7]], [[8, 9], [10]]))
            arguments = packed.source, packed.target_input, packed.packing
            assert_close(compiled(*arguments), model(*arguments))
    training = tiny_transformer(**SMALL, dropout=0.5).train()
    compiled = torch.compile(training, backend="aot_eager", fullgraph=True)
    compiled(source, target).square().sum().backward()
    assert all(parameter.grad is not None for parameter in training.parameters())


def test_a_model_is_one_graph() -> None:
    # The checks of shapes that tests have cannot be traced; a fork has none, as users.
    process = FORKS.Process(target=compiled_equals_eager)
    process.start()
    assert exit_code(process) == 0
