"""Hugging Face's Marian and its ``generate`` with our weights: same logits, same translations.

Beam search agrees too, in text and score, with three settings of theirs; what else differs:

- ``length_penalty`` there is our ``length_penalty_form=average``: the length counts the end of the
  sentence in both.
- ``early_stopping=True`` ends a sentence when as many hypotheses are finished as the beam is wide,
  as ours. Their default searches on, and with a length penalty often finds another best one.
- ``suppress_tokens`` must name padding and the beginning: our searches never choose them.
- At the longest length both force the end, but there it is certain, and ours counts its
  log-probability. The longest length is one for a batch there, one for a sentence here.
"""

import random
from functools import cache
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from benchmarks.support.marian_twin import marian
from tests.helpers.decoding.steps import search_config
from tests.helpers.model.huggingface_twins import spread
from tests.helpers.model.models import tiny_transformer
from transformer.data.batching.batch import collate, pad_source
from transformer.decoding.batched_search import search_batch
from transformer.decoding.search.search import Hypothesis
from transformer.model.transformer import Transformer
from transformer.settings.tokenizer import BOS, EOS, PAD

pytestmark = pytest.mark.thorough

VOCAB, LONGEST, SENTENCES = 40, 60, 200


def random_sentences(count: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(4, VOCAB) for _ in range(draw.randint(1, 20))] for _ in range(count)]


@cache
def half_trained() -> Transformer:
    """So that what it says varies, and ends, and is often wrong: random weights say one thing."""
    model = tiny_transformer(
        norm_order="post", source_vocab_size=VOCAB, target_vocab_size=VOCAB, d_model=32
    )
    spread(model, 1)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(120):
        sources = random_sentences(32, seed=step + 2)
        # A cipher that doubles every other symbol.
        targets = [[7 * p % 36 + 4 for p in row for _ in range(1 + p % 2)] for row in sources]
        batch = collate(sources, targets)
        logits = model.logits(model(batch.source, batch.target_input))
        loss = F.cross_entropy(
            logits.flatten(0, 1), batch.target_output.flatten(), ignore_index=PAD
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def ours(sources: list[list[int]], **search: object) -> list[Hypothesis]:
    same = {"max_length_offset": LONGEST, "length_penalty_form": "average", "stopping": "full"}
    config = search_config(**same, **search)
    model = half_trained()
    with torch.inference_mode():
        return [found[0] for found in search_batch(model, sources, config, None)]


def theirs(sources: list[list[int]], **search: Any) -> list[tuple[tuple[int, ...], float]]:
    """Tokens and scores."""
    padded = pad_source(sources)
    found = marian(half_trained()).generate(
        padded,
        attention_mask=(padded != PAD).long(),
        max_new_tokens=LONGEST + 1,
        # Our searches never choose them, and do not renormalize the rest; nor does theirs so.
        suppress_tokens=[PAD, BOS],
        return_dict_in_generate=True,
        output_scores=True,
        do_sample=False,
        **search,
    )
    rows = [tuple(t for t in row if t not in (PAD, BOS, EOS)) for row in found.sequences.tolist()]
    scores = getattr(found, "sequences_scores", None)
    return list(zip(rows, [0.0] * len(rows) if scores is None else scores.tolist(), strict=True))


def test_the_twin_is_a_copy_with_the_same_logits() -> None:
    model = half_trained()
    source = pad_source(random_sentences(20, seed=1))
    target = torch.randint(4, VOCAB, (20, 9), generator=torch.Generator().manual_seed(1))
    target[:, 0] = BOS
    twin = marian(model)
    found = twin(source, (source != PAD).long(), target).logits
    expected = model.logits(model(source, target))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize(
    "changes",
    [{"norm_order": "pre"}, {"positions": "learned"}, {"tie_embeddings": "none"}],
    ids=str,
)
def test_another_architecture_is_refused(changes: dict[str, Any]) -> None:
    [(name, value)] = changes.items()
    model = tiny_transformer(**({"norm_order": "post"} | changes))
    with pytest.raises(ValueError, match=f"model.{name}={value}: Marian has"):
        marian(model)


GREEDY = {"algorithm": "greedy", "beam_size": 1}


@pytest.mark.parametrize("length_penalty", [None, 0.0, 0.6, 1.0])
def test_translations_are_equal(length_penalty: float | None) -> None:
    """Of greedy search, and of beam search with a length penalty."""
    sources = random_sentences(SENTENCES, seed=1)
    if length_penalty is None:
        expected, found = ours(sources, **GREEDY), theirs(sources, num_beams=1)
        assert len({hypothesis.tokens for hypothesis in expected}) > 0.9 * SENTENCES
        assert [tokens for tokens, _ in found] == [hypothesis.tokens for hypothesis in expected]
        return
    penalty = {"length_penalty": length_penalty}
    expected = ours(sources, beam_size=4, **penalty)
    found = theirs(sources, num_beams=4, early_stopping=True, **penalty)
    # A forced end is certain there.
    free = [i for i, h in enumerate(expected) if max(len(h.tokens), len(found[i][0])) < LONGEST]
    assert len(free) > 0.8 * SENTENCES
    assert [found[i][0] for i in free] == [expected[i].tokens for i in free]
    assert [found[i][1] for i in free] == pytest.approx([expected[i].score for i in free], abs=1e-4)
