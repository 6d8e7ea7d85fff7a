"""Sizes and elements as expressions: what they are, how they are read, written and compared."""
