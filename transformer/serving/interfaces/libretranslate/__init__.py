"""The interface of LibreTranslate 1.9."""
