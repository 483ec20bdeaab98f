"""The version of this package, in signatures and records."""

VERSION = "0.1.0"
