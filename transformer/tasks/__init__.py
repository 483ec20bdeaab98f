"""Translation, tagging, language modelling: data, model, loss and score of each."""
