"""What is wrong with a corpus, and how it is cleaned."""
