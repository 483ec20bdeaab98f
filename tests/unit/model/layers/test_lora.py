"""Low-rank adapters: the explicit formula, and the merged model."""

from typing import Any

import torch
from torch import nn

from tests.helpers.model.models import tiny_config
from transformer.model.build import build_transformer
from transformer.model.layers.linear import Linear
from transformer.model.layers.lora import LowRankLinear, merge_adapters


def test_an_adapter_is_the_explicit_update_in_value_and_gradient() -> None:
    torch.manual_seed(1)
    base = Linear(6, 5)
    adapted, x = LowRankLinear(base, 3, 2.0), torch.randn(4, 6)
    assert torch.equal(adapted(x), base(x))  # nothing changes at first
    nn.init.normal_(adapted.lora_up)
    down, up = (w.detach().clone().requires_grad_() for w in (adapted.lora_down, adapted.lora_up))
    explicit = nn.functional.linear(x, base.weight + 2.0 * up @ down, base.bias)
    torch.testing.assert_close(adapted(x), explicit)
    adapted(x).square().sum().backward()
    explicit.square().sum().backward()
    torch.testing.assert_close(adapted.lora_down.grad, down.grad)
    torch.testing.assert_close(adapted.lora_up.grad, up.grad)


def test_a_merged_model_computes_the_same_without_adapters() -> None:
    sizes: dict[str, Any] = {"activation": "swiglu", "share_layers": "attention"}
    torch.manual_seed(1)
    adapted = build_transformer(tiny_config(lora_rank=2, lora_alpha=3.0, **sizes)).eval()
    for name, weight in adapted.named_parameters():
        if name.endswith("lora_up"):
            nn.init.normal_(weight)
    plain = build_transformer(tiny_config(**sizes)).eval()
    plain.load_state_dict(merge_adapters(adapted.state_dict(), 3.0 / 2))
    tokens = torch.randint(4, 9, (2, 5))
    torch.testing.assert_close(plain(tokens, tokens), adapted(tokens, tokens), atol=1e-4, rtol=1e-4)
