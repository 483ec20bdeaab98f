"""A Transformer sequence-to-sequence framework: raw parallel text in, translations and BLEU out."""

__version__ = "0.1.0"
