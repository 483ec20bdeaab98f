"""A Transformer sequence-to-sequence framework: pairs of raw text in, text and scores out."""

__version__ = "0.1.0"
