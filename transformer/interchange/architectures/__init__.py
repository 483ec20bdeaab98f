"""Model folders of transformers and Marian to our config, weights and vocabulary, and back."""
