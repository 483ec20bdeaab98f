"""Word alignment of given translations, which the decoder is made to say (forced decoding).

It knows texts and the tokenizer; not where the translations come from, nor gold links.
"""

from collections.abc import Sequence

from transformer.data.batching.batch import collate
from transformer.data.text.word_alignment import Links, subword_words
from transformer.data.tokenization.tokenizer import Tokenizer
from transformer.decoding.alignment import Aligner, aligning_attention, word_links
from transformer.decoding.inference_mode import evaluating
from transformer.decoding.length_bucketing import bucket_batches, check_lengths
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
        model: Moved nowhere; its mode is restored.
        tokenizer: The one the model was trained with.
        pairs: Raw (source, target) text.
        aligner: How links are read off.
        batch_tokens: The most padded tokens of a batch, on the longer side.

    Raises:
        InputError: A text is longer than the model has positions for (learned ones end), or there
            is no such head.
    """
    aligner = aligner.checked(model.config)
    sources = tokenizer.encode_source([source for source, _ in pairs])
    targets = tokenizer.encode_target([target for _, target in pairs])
    encoded = list(zip(sources, targets, strict=True))
    lengths = [max(map(len, sides)) + 1 for sides in encoded]
    check_lengths(lengths, model.max_length, "align")
    links: list[Links] = [frozenset()] * len(pairs)
    with evaluating(model):
        for indices in bucket_batches(lengths, batch_tokens):
            found = _links(model, tokenizer, [encoded[index] for index in indices], aligner)
            for index, links_of_pair in zip(indices, found, strict=True):
                links[index] = links_of_pair
    return links


def _links(
    model: Transformer,
    tokenizer: Tokenizer,
    encoded: Sequence[tuple[list[int], list[int]]],
    aligner: Aligner,
) -> list[Links]:
    """Of one batch of (source, target) piece ids."""
    sources, targets = zip(*encoded, strict=True)
    batch = collate(sources, targets).to(next(model.parameters()).device)
    weights = aligning_attention(model, batch.source, batch.target_input, aligner.head)
    return [
        word_links(
            row[: len(target), : len(source)],
            subword_words(tokenizer.source_subwords(source)),
            subword_words(tokenizer.subwords(target)),
            aligner.near_best,
        )
        for row, (source, target) in zip(weights.float().cpu(), encoded, strict=True)
    ]
