"""Softmax and its kin, and the normalizations."""
