"""Positions inside self-attention: a rotation of queries and keys, or a bias on their scores.

They depend only on the distance of a key from its query, and exist for any length. The sinusoids of
the paper (section 3.5) are added to the embeddings instead: layers/absolute_positions.py.
"""
