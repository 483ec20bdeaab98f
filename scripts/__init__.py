"""Commands for a checkout; the package knows none of them."""
