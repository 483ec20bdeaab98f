"""Models for other engines: what each can express, and whether it says the same."""
