"""Translation, tagging, language modeling: data, model, loss and score of each."""
