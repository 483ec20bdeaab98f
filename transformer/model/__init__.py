"""Batches to logits. Read in the paper's order:

embedding, positions, masks, attention (its projections in linear, its bfloat16 in
mixed_precision), feedforward, norm, encoder, cache, decoder, transformer; then what surrounds
them: config and meaning, build and initialisation, precision, checkpoint, formats, archive,
shards and run_files.
The variants: patterns (who sees whom), relative (positions inside the attention), scope (both, as
a layer is handed them), kernels and blocks (other ways to the same numbers), recording and
heads (looking at them, switching them off), dropout, single_stack (an encoder alone, a decoder
alone).
"""
