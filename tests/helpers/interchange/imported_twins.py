"""An imported model beside its original in transformers."""

from typing import Any

import torch

from transformer.decoding.translator import Translator
from transformer.interchange.architectures.subwords import ImportedIds
from transformer.settings.tokenizer import BOS


def assert_same_logits(
    translator: Translator, model: Any, encoded: Any, rows: list[list[int]], ids: ImportedIds
) -> None:
    """Compare the logits of an imported model with those of its original, within 1e-4.

    Args:
        translator: Of the imported model.
        model: The original, of transformers.
        encoded: Sources for it.
        rows: The same sources for ours.
        ids: Of the target; symbols that have none there are not compared.
    """
    padded = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True)
    prefix = torch.randint(4, 300, (len(rows), 7), generator=torch.Generator().manual_seed(0))
    prefix[:, 0] = BOS
    there = torch.tensor(ids.rows)[prefix]
    there[:, 0] = model.config.decoder_start_token_id
    with torch.no_grad():
        ours = translator.model.logits(translator.model(padded, prefix))
        right = model(
            input_ids=encoded.input_ids,
            attention_mask=encoded.attention_mask,
            decoder_input_ids=there,
        ).logits
    kept = [i for i in range(len(ids.rows)) if i not in ids.never]
    right = right[..., torch.tensor(ids.rows)[kept]]
    torch.testing.assert_close(ours[..., kept], right, rtol=1e-5, atol=1e-4)
