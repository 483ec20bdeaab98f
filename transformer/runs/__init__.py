"""The life of a run: start, fine-tune, resume, test, tune."""
