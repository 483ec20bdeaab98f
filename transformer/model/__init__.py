"""Batches to logits. Read in the paper's order:

layers/embedding, attention/masks, attention/multi_head, layers/feedforward, layers/norm, encoder,
decoder, transformer; then config and build, which choose the variants.
"""
