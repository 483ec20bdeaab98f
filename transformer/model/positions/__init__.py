"""Positions inside self-attention: a rotation of queries and keys, or a bias on their scores."""
