"""Sizes that are fixed for good: numbers in the place of names, and all that follows folded."""
