"""Kernels in numpy: inputs positional, attributes by keyword, a tuple back, nothing mutated."""
