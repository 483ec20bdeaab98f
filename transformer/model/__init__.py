"""The Transformer: batches of tokens to logits. Table of contents, in the order of the paper.

The paper is "Attention Is All You Need", Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
Paths begin at this folder. docs/attention.md explains the files.

==============================  =========================================  =====================
In the paper                    File                                       Names
==============================  =========================================  =====================
3, figure 1: the model          transformer.py                             Transformer
3.1, figure 1, left             encoder.py                                 EncoderLayer, Encoder
3.1, figure 1, right            decoder.py                                 DecoderLayer, Decoder
3.1: residual and norm          layers/residual.py                         PostNorm
3.2.1, figure 2, left; eq. 1    attention/scaled_dot_product.py            attend
3.2.2, figure 2, right          attention/multi_head.py                    MultiHeadAttention
3.2.3: masks                    attention/masks.py                         causal_mask
padding                         attention/masks.py                         padding_mask
3.3: feed-forward; eq. 2        layers/feedforward.py                      FeedForward
3.4: embeddings                 layers/embedding.py                        TokenEmbedding
3.4: softmax of the logits      ../decoding/search/model_step.py           next_log_probabilities
3.5: positions                  positions/absolute.py                      sinusoids
5.1: batches of equal lengths   ../data/batching/batch_sequence.py         BatchPlan
5.3: Adam                       ../training/optimization.py                build_optimizer
5.3: learning rate; eq. 3       ../training/optimization.py                noam
5.4: dropout                    layers/dropout.py                          Dropout
5.4: label smoothing            ../training/losses/cross_entropy.py        cross_entropy
6.1: average of checkpoints     ../checkpoint/averaging.py     average_checkpoints
6.1: beam search                ../decoding/search/beam.py                 beam_search
6.2, table 3: sizes             ../settings/model.py                       ModelConfig
==============================  =========================================  =====================

The variants are in other files. build.py chooses them by the values of ../settings/model.py:

- attention/attention_context.py: mask, bias and rotation of an attention, as its layers read them.
- attention/kernels/: the same attention, faster. attention/sparse_patterns.py: sparse attention.
- positions/: absolute positions, and those inside the attention.
- attention/kv_cache.py: keys and values between the steps of a search.
- convolution.py: an encoder layer with a convolution. single_stack.py: a model of one stack.
- layers/norm.py: layer norm and RMS norm. layers/recurrence.py: in place of self-attention.
- layers/lora.py: adapters. layers/quantization.py: fewer bits.
- initialization.py: initial weights. head_masks.py: switches heads off. ../checkpoint/: the file.
"""
