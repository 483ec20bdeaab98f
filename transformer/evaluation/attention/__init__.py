"""What the attention heads do, and what each is worth."""
