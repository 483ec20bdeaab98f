"""M2M-100 and NLLB models of Hugging Face."""
