"""One verb a file: the call of a user turned into a call of the library."""
