"""The interface of DeepL, version 2."""
