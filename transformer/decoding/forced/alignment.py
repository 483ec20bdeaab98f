"""Word alignment of given translations by forced decoding.

It knows texts and the tokenizer; not where the translations come from, nor gold links.
"""

from collections.abc import Sequence

from transformer.data.text.word_alignment import Links, subword_words
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner, batched_attention, word_links
from transformer.decoding.inference_mode import evaluating
from transformer.decoding.length_bucketing import check_lengths, pair_lengths
from transformer.model.transformer import Transformer


def align(
    model: Transformer,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    *,
    aligner: Aligner,
    batch_tokens: int = 4096,
) -> list[Links]:
    """Link the words of sentence pairs.

    Args:
        model: It stays on its device; its mode is restored.
        tokenizer: The tokenizer of the model.
        pairs: Raw (source, target) text.
        aligner: How links are read from the attention.
        batch_tokens: Maximal padded tokens of a batch, on the longer side.

    Raises:
        InputError: A text is longer than the learned positions of the model, or the model has no
            such head.
    """
    aligner.check(model.config)
    sources = tokenizer.encode_source([source for source, _ in pairs])
    targets = tokenizer.encode_target([target for _, target in pairs])
    encoded = list(zip(sources, targets, strict=True))
    check_lengths(pair_lengths(encoded), model.max_length, "align")
    with evaluating(model):
        found = batched_attention(model, encoded, aligner.head, batch_tokens)
    return [
        word_links(
            weights,
            subword_words(tokenizer.source_subwords(source)),
            subword_words(tokenizer.subwords(target)),
            aligner.near_best,
        )
        for weights, (source, target) in zip(found, encoded, strict=True)
    ]
