"""Search: a step function in, hypotheses out."""
