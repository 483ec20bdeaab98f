"""Scores of given targets equal a walk over the logits."""

import torch

from tests.helpers.model.models import tiny_transformer
from tests.helpers.model.tolerance import assert_close
from transformer.decoding.forced_decoding import score_targets


def test_target_scores_equal_a_walk_over_the_logits() -> None:
    model = tiny_transformer()
    source = torch.tensor([[7, 8, 3], [9, 3, 0]])
    target_input = torch.tensor([[2, 5, 6, 7], [2, 8, 0, 0]])
    target_output = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
    scores = score_targets(model, model.encode(source), target_input, target_output)
    expected = torch.zeros(2, 4)
    for row, length in enumerate((4, 2)):
        for index in range(length):
            prefix = target_input[row : row + 1, : index + 1]
            hidden = model(source[row : row + 1, : 3 - row], prefix)[0, -1]
            probabilities = model.logits(hidden).softmax(-1)
            expected[row, index] = probabilities[target_output[row, index]].log()
    assert_close(scores, expected.detach())
