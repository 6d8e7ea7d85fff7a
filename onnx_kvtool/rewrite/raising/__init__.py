"""Raising: one update form per file, and what proves that it is a TensorScatter."""
