"""Tags of a tagger, probabilities of a language model."""
